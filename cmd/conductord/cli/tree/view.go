package tree

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/await"
	"github.com/conductord/conductord/logbook"
)

const (
	// redrawEvery is the interval at which a terminal updates the durations of running steps.
	redrawEvery = 250 * time.Millisecond
	// reloadEvery is the interval of reads without an event, because a change can have happened
	// before the watch started.
	reloadEvery = 2 * time.Second
	// reloadRest is the pause before the next read, as a multiple of the duration of the last read.
	// It keeps the watch of a huge flow from loading the cluster.
	reloadRest = 3
)

// Follow shows the steps of a job's flow on stderr until the job is finished or needs an operator.
// Events only trigger a read of the logbook, so a lost event cannot cause a wrong picture.
func Follow(ctx context.Context, p *cli.Program, cluster cli.FlowReader, job jobs.Job) (jobs.Job, error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	changed := make(chan struct{}, 1)
	running.Go(func() { // ends with ctx
		for _, err := range cluster.Watch(ctx, jobs.Watch{Job: job.ID, Flows: true}) {
			if err != nil {
				return // the picture is then as old as reloadEvery; Wait reports the error
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	})
	type result struct {
		job jobs.Job
		err error
	}
	done := make(chan result, 1)
	running.Go(func() { // ends with ctx
		var finished jobs.Job
		_, err := await.Jobs(ctx, cluster, await.Waiting{Jobs: []jobs.JobID{job.ID}})
		if err == nil {
			finished, err = cluster.Job(ctx, job.ID)
		}
		done <- result{finished, err}
	})

	v := newView(p, cluster, job.Flow)
	ticks := time.NewTicker(redrawEvery)
	defer ticks.Stop()
	unserved := time.NewTicker(reloadEvery)
	defer unserved.Stop()
	v.reload(ctx)
	for {
		select {
		case end := <-done:
			if end.err == nil {
				v.reload(ctx)
			}
			return end.job, end.err
		case <-unserved.C:
			if why, err := cluster.Explain(ctx, job.ID); err == nil && why.Remedy.Verb == jobs.RemedyStartWorker {
				unserved.Stop()
				v.drawn = 0 // the next picture is drawn below
				p.Note("the job waits: %s; next step: `%s`", why.Text, cli.RemedyText(why.Remedy))
			}
		case <-changed:
			v.stale = true
			v.refresh(ctx)
		case <-ticks.C:
			v.refresh(ctx)
		}
	}
}

// view is the picture of one flow while it runs. One goroutine uses it.
type view struct {
	program    *cli.Program
	connection cli.FlowReader
	flow       logbook.FlowID

	detail *logbook.FlowDetail // nil: not read yet
	rows   []treeRow
	places []engine.Places   // of the loops in which elements wait
	told   map[string]string // without a terminal: the last line of each step
	failed map[string]int    // without a terminal: number of checked attempts of each step
	drawn  int               // on a terminal: number of lines that the next picture replaces

	stale  bool // something has changed since the flow was read
	read   time.Time
	resume time.Time // earliest time of the next read
}

func newView(p *cli.Program, connection cli.FlowReader, flow logbook.FlowID) *view {
	return &view{program: p, connection: connection, flow: flow, told: make(map[string]string), failed: make(map[string]int)}
}

// refresh reads the flow if it is due; otherwise it only updates the durations.
func (v *view) refresh(ctx context.Context) {
	now := time.Now()
	if due := v.stale || now.Sub(v.read) >= reloadEvery; due && now.After(v.resume) {
		v.reload(ctx)
		return
	}
	if v.program.Terminal && v.detail != nil {
		v.draw()
	}
}

// reload reads the flow and shows it. After an error the picture stays: the wait for the job
// reports the error.
func (v *view) reload(ctx context.Context) {
	if v.flow.IsZero() {
		return
	}
	began := time.Now()
	v.stale = false
	detail, err := v.connection.FlowDetail(ctx, v.flow)
	v.read = time.Now()
	v.resume = v.read.Add(reloadRest * v.read.Sub(began))
	if err != nil {
		return
	}
	if v.detail == nil || len(v.detail.Atoms) != len(detail.Atoms) {
		v.rows = rowsOf(&detail)
	}
	v.detail, v.places = &detail, loopsOf(v.rows, &detail)
	v.resume = v.resume.Add(reloadRest * time.Since(v.read)) // to find the places of a large flow takes time, too
	if v.program.Terminal {
		v.draw()
	} else {
		v.tell()
	}
}

// draw draws the tree over the previous one.
func (v *view) draw() {
	t := tree{rows: v.rows, detail: v.detail, places: v.places, now: time.Now(), colour: v.program.Value("NO_COLOR") == ""}
	t.width, t.height = v.program.Size()
	const up, clear, clearBelow = "\x1b[%dA", "\x1b[2K", "\x1b[J"
	var picture strings.Builder
	if v.drawn > 0 {
		fmt.Fprintf(&picture, up, v.drawn)
	}
	lines := t.lines()
	for _, line := range lines {
		picture.WriteString("\r" + clear + line + "\n")
	}
	picture.WriteString(clearBelow)
	fmt.Fprint(v.program.Err, picture.String())
	v.drawn = len(lines)
}

// tellFailed writes a line for each failed attempt that was followed by another attempt, unless
// a line of the step's state showed the failure already.
func (v *view) tellFailed(atom *logbook.AtomDetail) {
	all, folded := len(atom.Attempts)+atom.Folded.Len(), atom.Folded.Len()
	for i := max(0, v.failed[atom.Name]-folded); i < len(atom.Attempts)-1; i++ {
		if attempt := &atom.Attempts[i]; attempt.Failure != nil {
			fmt.Fprintln(v.program.Err, cli.Clean(v.program.TimeText(attempt.EndedAt)+" "+FailedAttemptText(atom, attempt)))
		}
	}
	if v.failed[atom.Name] = all; !settled(atom) && atom.RetryAt.IsZero() {
		v.failed[atom.Name] = all - 1 // if it fails, a later line shows its failure
	}
}

// tell writes a line for each step that has changed.
func (v *view) tell() {
	t := tree{detail: v.detail, now: v.read}
	for i := range v.detail.Atoms {
		atom := &v.detail.Atoms[i]
		state := fmt.Sprintf("%s %d", shownState(atom), len(atom.Attempts)+atom.Folded.Len())
		if atom.Kind == logbook.KindRetry && atom.Intention == logbook.IntendRetry {
			state += " begins again" // a step's intention is not shown until the step acts on it
		}
		if v.told[atom.Name] == state {
			continue
		}
		v.told[atom.Name] = state
		v.tellFailed(atom)
		text := strings.Join([]string{v.program.TimeText(v.read), cli.Clean(atom.Name), string(shownState(atom))}, " ")
		if waits := !atom.RetryAt.IsZero(); settled(atom) || waits || atom.Kind == logbook.KindRetry {
			text = strings.Join(slices.DeleteFunc([]string{text, t.facts(&treeRow{}, atom), t.outcome(atom)}, func(part string) bool { return part == "" }), " ")
		}
		fmt.Fprintln(v.program.Err, cli.Clean(text))
	}
	if state := string(v.detail.State); v.told[""] != state {
		v.told[""] = state
		fmt.Fprintf(v.program.Err, "%s flow %s %s\n", v.program.TimeText(v.read), cli.Clean(v.detail.Name), state)
	}
}
