package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	chaos "github.com/conductord/conductord/test/cluster"
)

// signalsPerJob is the number of signals for which each flow of TestSignalsAreLinearizable waits.
const signalsPerJob = 40

// sentSignal is a call that sends a signal to a job.
type sentSignal struct{ job, id string }

// signalCalls are the calls of all senders.
type signalCalls struct {
	mu    sync.Mutex
	calls []porcupine.Operation
	began time.Time
}

// send sends one signal by a random way: to the job's id, by its key, or with a posting.
func (s *signalCalls) send(ctx context.Context, client *raftboard.Client, sender int, draw *rand.Rand, job jobs.JobID, id string) error {
	var receipt jobs.SignalReceipt
	var err error
	signal, key := logbook.Signal{Name: "paid", ID: id}, "key of "+job.String()
	call := time.Since(s.began)
	switch draw.IntN(3) {
	case 0:
		receipt, err = client.Signal(ctx, job, signal)
	case 1:
		receipt, err = client.SignalKey(ctx, "", key, signal)
	default:
		var posted []jobs.Posted
		posted, err = client.Post(ctx, jobs.Posting{Name: "again", Kind: "again", Key: key, Signal: &signal})
		if err == nil {
			receipt, err = posted[0].Signal, posted[0].Err
		}
	}
	answer := string(receipt.Answer)
	switch {
	case err == nil && receipt.Job != job:
		return fmt.Errorf("signal %s reached job %s, and not job %s", id, receipt.Job, job)
	case errors.Is(err, jobs.ErrUnavailable), errors.Is(err, jobs.ErrUncertain), ctx.Err() != nil:
		answer = "unknown"
	case err != nil:
		return err
	}
	back := time.Since(s.began)
	if answer == "unknown" {
		back = time.Hour // the call can take effect later
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, porcupine.Operation{ClientId: sender, Input: sentSignal{job.String(), id}, Call: int64(call), Output: answer, Return: int64(back)})
	return nil
}

// signalModel defines the valid answers of one job. taken are the ids that its waits took, in order, so the state is
// the number of accepted signals: the log accepts the signals of a job in the order in which its waits take them.
func signalModel(taken map[string][]string) porcupine.Model {
	model := porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byJob := map[string][]porcupine.Operation{}
			for _, call := range history {
				byJob[call.Input.(sentSignal).job] = append(byJob[call.Input.(sentSignal).job], call)
			}
			var parts [][]porcupine.Operation
			for _, part := range byJob {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() []any { return []any{0} },
		Step: func(state, input, output any) []any {
			accepted, in := state.(int), input.(sentSignal)
			place := slices.Index(taken[in.job], in.id)
			known, next := place >= 0 && place < accepted, place == accepted
			switch {
			case output == "unknown" && next:
				return []any{accepted, accepted + 1}
			case output == "unknown", output == string(jobs.SignalRepeated) && known:
				return []any{accepted}
			case output != string(jobs.SignalRepeated) && next:
				return []any{accepted + 1}
			}
			return nil
		},
	}
	return model.ToModel()
}

// takenBy returns the ids of the signals that the waits of a finished job took, in order.
func takenBy(t *testing.T, client *raftboard.Client, id jobs.JobID) (ids []string) {
	t.Helper()
	job, err := client.Wait(within(t), id)
	if err != nil || job.Outcome != jobs.OutcomeSuccess || job.UnreadSignals != 0 {
		t.Fatalf("job %s is %s with %d unread signals, %v", id, job.Outcome, job.UnreadSignals, err)
	}
	detail, err := client.FlowDetail(within(t), job.Flow)
	if err != nil {
		t.Fatal(err)
	}
	for i := range signalsPerJob {
		atom, found := detail.Atom(fmt.Sprint("w", i))
		if !found || atom.Attempts[len(atom.Attempts)-1].Wait.Signal == nil {
			t.Fatalf("step w%d of job %s took no signal", i, id)
		}
		ids = append(ids, atom.Attempts[len(atom.Attempts)-1].Wait.Signal.ID)
	}
	return ids
}

// TestSignalsAreLinearizable kills the leader every 5 s while senders signal the same jobs through all nodes: by id, by
// key, and with postings. The waits of each job take each signal once, and the answers are consistent with one order of
// all calls about the job. A repeat never posts a second job.
func TestSignalsAreLinearizable(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	const pace, senders = 5 * time.Second, 6
	lasts := timeOf(t, linearizableTimeEnv, 3*pace)
	f := openField(t)
	var steps strings.Builder
	for i := range signalsPerJob {
		fmt.Fprintf(&steps, "[[steps]]\nname = \"w%d\"\nwait = {signal = \"paid\"}\n", i)
	}
	var ids []jobs.JobID
	for range 3 {
		id := jobs.NewJobID()
		f.runFlow(steps.String(), "--id", id.String(), "--key", "key of "+id.String())
		ids = append(ids, id)
	}
	history := &signalCalls{began: time.Now()}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	endpoints := f.cluster.Endpoints()
	for sender := range senders {
		at := sender % len(endpoints)
		client, err := raftboard.Open(t.Context(), raftboard.Options{Endpoints: append(slices.Clone(endpoints[at:]), endpoints[:at]...), Patience: chaos.Impatient})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		draw := rand.New(rand.NewPCG(uint64(sender), 0))
		all.Go(func() {
			for ctx.Err() == nil {
				known := min(signalsPerJob, 1+int(signalsPerJob*time.Since(history.began)/lasts)) // new signals come until the end
				if err := history.send(ctx, client, sender, draw, ids[draw.IntN(len(ids))], fmt.Sprint("evt_", draw.IntN(known))); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Duration(draw.IntN(100)) * time.Millisecond):
				}
			}
		})
	}
	killed := killLeaders(t, f.cluster, f.client, lasts, pace)
	stop()
	all.Wait()
	taken, last := map[string][]string{}, rand.New(rand.NewPCG(senders, 0))
	for _, id := range ids {
		for i := range signalsPerJob {
			if err := history.send(within(t), f.client, senders, last, id, fmt.Sprint("evt_", i)); err != nil {
				t.Fatal(err)
			}
		}
		taken[id.String()] = takenBy(t, f.client, id)
		if page, err := f.client.Jobs(within(t), jobs.Query{Key: "key of " + id.String()}); err != nil || len(page.Items) != 1 {
			t.Errorf("%d jobs have the key of job %s, %v", len(page.Items), id, err)
		}
	}
	t.Logf("%d leaders killed, %d calls", killed, len(history.calls))
	if result := porcupine.CheckOperationsTimeout(signalModel(taken), history.calls, patience); result != porcupine.Ok {
		t.Errorf("the answers are consistent with no order of the calls: %s", result)
	}
}

// TestWaitOutlivesItsConductor: a signal continues a flow whose conductor was killed while the flow waited, at another
// conductor.
func TestWaitOutlivesItsConductor(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	f := openField(t)
	first := f.alone("alone-1")
	job := f.runFlow("[[steps]]\nname = \"a\"\nhandler = \"quick\"\n[[steps]]\nname = \"payment\"\nwait = {signal = \"paid\"}\n[[steps]]\nname = \"b\"\nhandler = \"quick\"", "--label", "here")
	eventually(t, "the flow waits", func() bool { return strings.Contains(ran(t, "job", "explain", job, f.all), "job signal "+job+" paid") })
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if said := ran(t, "job", "signal", job, "paid", "--data", "7", f.all); said != "taken\n" {
		t.Errorf("the signal is %s", said)
	}
	if f.started() != "a execute 1" {
		t.Errorf("without a conductor, these steps began: %s", f.started())
	}
	second := f.alone("alone-2")
	f.ends(job, jobs.OutcomeSuccess)
	if f.started() != "a execute 1, b execute 1" {
		t.Errorf("these steps began: %s", f.started())
	}
	if err := second.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}
