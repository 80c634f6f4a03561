package test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

const parcelDocument = `
name = "parcel"
pattern = "linear"
[store]
items = ["hat", "coat"]
[[steps]]
name = "reserve"
revert = "release"
[[steps]]
name = "pack-all"
each = {over = "items", as = "item"}
[[steps.steps]]
name = "pack"
handler = "reserve"
revert = "release"
[[steps]]
name = "ship"
revert = "release"
[[steps]]
name = "bill"
handler = "reserve"
`

// parcelRenames are the new names of all steps. The steps before bill have started when a flow stops.
var parcelRenames = map[string]string{"reserve": "hold-shelf", "pack-all": "wrap-all", "pack": "wrap", "ship": "send", "bill": "charge"}

// renamedParcel is the document with the new names.
func renamedParcel(document string) string {
	for old, name := range parcelRenames {
		handler := ""
		if old == "reserve" || old == "ship" {
			handler = "\nhandler = \"" + old + "\"" // a step without handler has the handler of its name
		}
		document = strings.Replace(document, `name = "`+old+`"`, `name = "`+name+`"`+handler, 1)
	}
	return document
}

// program runs the conductor of a program outside the cluster, whose release builds flows of kind parcel from this
// document, until stop.
func (w *warehouse) program(document string) (stop func()) {
	w.Helper()
	parsed, err := spec.Parse([]byte(document), "parcel.toml")
	if err != nil {
		w.Fatal(err)
	}
	handlers, err := handler.Open(filepath.Join(w.dir, "handlers"))
	if err != nil {
		w.Fatal(err)
	}
	registry := flow.NewRegistry()
	if err := registry.Register("parcel", func(json.RawMessage) (*flow.Flow, error) { return parsed.Build(handlers) }); err != nil {
		w.Fatal(err)
	}
	program, err := conductor.New(conductor.Options{Client: w.client, Registry: registry, Name: "parcels"})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- program.Run(ctx) }() // ends with stop
	return func() {
		w.Helper()
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	}
}

// stopped posts a parcel and stops it behind the step ship: by its failure, or by an operator.
func (w *warehouse) stopped(document string, held bool) jobs.Job {
	w.Helper()
	defer w.program(document)()
	w.mark("shut", held)
	w.mark("busy", !held)
	posting := documentPosting(w.T, "parcel", document)
	posting.Book.Flows[0].Factory = logbook.Factory{Name: "parcel"}
	job, err := jobs.PostOne(within(w.T), w.client, posting)
	if err != nil {
		w.Fatal(err)
	}
	if held {
		return w.ends(job.ID, jobs.OutcomeFailed, logbook.FlowFailure)
	}
	eventually(w.T, "the parcel is being shipped", func() bool {
		text, err := os.ReadFile(filepath.Join(w.dir, "diary-"+job.ID.String()))
		return err == nil && strings.Contains(string(text), "ship execute")
	})
	w.says("job", "suspend", job.ID.String())
	w.mark("busy", false)
	eventually(w.T, "the job is suspended", func() bool {
		job, err = w.client.Job(within(w.T), job.ID)
		return err == nil && job.State == jobs.StateSuspended
	})
	return job
}

// renameUnderKill renames the started steps of a parcel, while the leader is killed. It starts the killed node again.
func (w *warehouse) renameUnderKill(id jobs.JobID) {
	w.Helper()
	args := []string{"--server", strings.Join(w.cluster.Endpoints(), ","), "flow", "change", id.String()}
	for _, old := range []string{"reserve", "pack-all", "pack", "ship"} {
		args = append(args, "--map", old+"="+parcelRenames[old])
	}
	leader := leaderOf(w.T, w.cluster, w.client)
	type answer struct {
		said []byte
		err  error
	}
	ended := make(chan answer, 1)
	go func() { // ends with the command
		said, err := exec.CommandContext(within(w.T), binary, args...).CombinedOutput()
		ended <- answer{said, err}
	}()
	flow := w.flowOf(id)
	eventually(w.T, "a rename took effect, or is refused", func() bool {
		detail, err := w.client.FlowDetail(within(w.T), flow)
		return err == nil && len(detail.Interventions) > 0 || len(ended) > 0
	})
	leader.Kill()
	if got := <-ended; got.err != nil {
		w.Fatalf("%v\n%s", got.err, got.said)
	}
	start(w.T, leader)
}

func (w *warehouse) flowOf(id jobs.JobID) logbook.FlowID {
	w.Helper()
	job, err := w.client.Job(within(w.T), id)
	if err != nil {
		w.Fatal(err)
	}
	return job.Flow
}

// TestRenamesOutliveTheirLeaders: a program with other names of all steps continues a flow that was stopped in the
// middle. The leader is killed while the renames are recorded, and the next leader when the flow continues. Each step is
// executed once, and reverted once.
func TestRenamesOutliveTheirLeaders(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	w := openWarehouse(t)
	for _, row := range []struct {
		name      string
		held      bool   // by a failed step; otherwise suspended
		say       string // continues the flow
		unbilled  bool   // the last step fails
		outcome   jobs.Outcome
		state     logbook.FlowState
		continues map[string]int // what is done with the new names
	}{
		{
			"suspended", false, "job resume JOB", false, jobs.OutcomeSuccess, logbook.FlowSuccess, map[string]int{"charge execute": 1},
		},
		{
			"held at a failure", true, "flow rerun JOB --from send", false, jobs.OutcomeSuccess, logbook.FlowSuccess,
			map[string]int{"send execute": 1, "charge execute": 1},
		},
		{
			"suspended, and then reverted", false, "job resume JOB", true, jobs.OutcomeReverted, logbook.FlowReverted,
			map[string]int{"charge execute": 1, "send revert": 1, "wrap[0] revert": 1, "wrap[1] revert": 1, "hold-shelf revert": 1},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := &warehouse{t, w.cluster, w.client, w.dir}
			document := parcelDocument
			if row.held {
				document = `on_failure = "hold"` + document
			}
			job := w.stopped(document, row.held)
			w.renameUnderKill(job.ID)
			w.mark("shut", row.unbilled)
			if row.unbilled {
				document = strings.Replace(document, "name = \"bill\"\nhandler = \"reserve\"", "name = \"bill\"\nhandler = \"ship\"", 1)
			}
			defer w.program(renamedParcel(document))()
			w.says(strings.Fields(strings.ReplaceAll(row.say, "JOB", job.ID.String()))...)
			leader := leaderOf(t, w.cluster, w.client)
			leader.Kill()
			job = w.ends(job.ID, row.outcome, row.state)
			start(t, leader)
			want := map[string]int{"reserve execute": 1, "pack[0] execute": 1, "pack[1] execute": 1, "ship execute": 1}
			maps.Copy(want, row.continues)
			if did := w.diary(job.ID); !maps.Equal(did, want) {
				t.Errorf("the handlers have done %v, want %v", did, want)
			}
			detail, renames := w.flow(job.Flow), make(map[string]string)
			for _, i := range detail.Interventions {
				if i.Kind == logbook.InterveneRename {
					renames[i.Step] += i.To
				}
			}
			renames["bill"] = "charge" // it had not started
			if !maps.Equal(renames, parcelRenames) {
				t.Errorf("the renames are %v", renames)
			}
		})
	}
}
