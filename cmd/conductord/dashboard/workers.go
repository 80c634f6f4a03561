package dashboard

import (
	"cmp"
	"context"
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// workerRow is a live step worker.
type workerRow struct {
	*v1.LiveWorker
	State badge
}

// workerStates are the shown states of a worker, in the order of the list.
var workerStates = []badge{{"set aside", "‖", "bad"}, {"silent", "?", "wait"}, {"full", "●", "busy"}, {"ready", "✓", "good"}}

func workerState(w *v1.LiveWorker) int {
	switch slots := w.GetEntity().GetMaxJobs(); {
	case w.GetAside() != nil:
		return 0
	case w.GetHeard() == nil:
		return 1
	case slots > 0 && w.GetHolds() >= slots:
		return 2
	}
	return 3
}

// loadWorkers lists live step workers; workers that need attention come first. Only the leader
// knows their attempts.
func loadWorkers(ctx context.Context, v *visit) (view, error) {
	answer, err := ask(ctx, v.api.workers.List, &v1.ListWorkersRequest{After: v.query("after")})
	all := answer.GetWorkers()
	slices.SortStableFunc(all, func(a, b *v1.LiveWorker) int { return cmp.Compare(workerState(a), workerState(b)) })
	data := struct {
		Workers []workerRow
		Left    int // not shown, because an answer has more workers than a page
		More    pager
	}{Left: max(0, len(all)-v.bound(pageRows)), More: v.more(answer.GetNext())}
	for _, w := range all[:len(all)-data.Left] {
		data.Workers = append(data.Workers, workerRow{w, workerStates[workerState(w)]})
	}
	return view{Title: "Workers", Command: "conductord worker list", Data: data}, err
}

// nameWorkers adds the names of the workers of running attempts. A worker that the node does not
// list is shown only by its session.
func (v *visit) nameWorkers(ctx context.Context, s *stepData) error {
	running := func(a attempt) bool { return a.Worker != "" && !a.Ended() }
	if !slices.ContainsFunc(s.Attempts, running) {
		return nil
	}
	answer, err := ask(ctx, v.api.sessions.ListEntities, &v1.ListEntitiesRequest{Kind: jobs.EntityWorker, Limit: logbook.MaxPage, Stale: true})
	for i := range s.Attempts {
		for _, e := range answer.GetEntities() {
			if running(s.Attempts[i]) && e.GetSession() == s.Attempts[i].Worker {
				s.Attempts[i].WorkerName = e.GetName()
			}
		}
	}
	return err
}
