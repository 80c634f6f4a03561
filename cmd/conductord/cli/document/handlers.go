package document

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

const (
	// announceTime is longer than the time in which a conductor announces a newly installed
	// handler.
	announceTime = 2 * time.Second
	// lookAgain is the interval of checks for an announcement.
	lookAgain = 100 * time.Millisecond
)

// HandlersOf are the handlers that the flow document of a posting names.
func HandlersOf(posting *jobs.Posting) []string {
	if posting.Book == nil || len(posting.Book.Flows) != 1 || posting.Book.Flows[0].Factory.Name != spec.Kind {
		return nil
	}
	document, err := spec.Parse(posting.Book.Flows[0].Factory.Args, "flow.json")
	if err != nil {
		return nil
	}
	return document.Handlers()
}

// Conductors reads the live conductors, and the jobs that they have claimed.
type Conductors interface {
	Job(ctx context.Context, id jobs.JobID) (jobs.Job, error)
	Entities(ctx context.Context, kind string) ([]jobs.Entity, error)
}

// WarnOfHandlers warns of handlers of a posted job that its live conductors lack. It does not
// warn if a conductor with all handlers takes the job, or if the handlers are announced within
// announceTime. Nothing is refused: a suitable conductor may start later. The jobs of a
// schedule have no id yet.
func WarnOfHandlers(ctx context.Context, p *cli.Program, cluster Conductors, job *jobs.Job, handlers []string) {
	if len(handlers) == 0 {
		return
	}
	late := time.After(announceTime)
	for end := false; ; {
		conductors, err := cluster.Entities(ctx, jobs.EntityConductor)
		if err != nil {
			return // the job is posted, and the warning is optional
		}
		conductors = slices.DeleteFunc(conductors, func(e jobs.Entity) bool { return !e.Takes(job) })
		if !slices.ContainsFunc(conductors, func(e jobs.Entity) bool { return !offersAll(&e, handlers) }) {
			return
		}
		now, err := cluster.Job(ctx, job.ID)
		unbuilt := err == nil && now.State == jobs.StateTrashed && now.Failure != nil && now.Failure.Kind == logbook.FailureBuild
		switch {
		case err == nil && !unbuilt && underWay(&now, conductors, handlers):
			return
		case end || unbuilt:
			sayLacking(p, job, conductors, handlers)
			return
		}
		select {
		case <-time.After(lookAgain):
		case <-late:
			end = true
		case <-ctx.Done():
			return
		}
	}
}

// offersAll reports whether a conductor has all the handlers. A conductor that announces no
// handlers may have them.
func offersAll(conductor *jobs.Entity, handlers []string) bool {
	var offered []string
	return json.Unmarshal(conductor.Metadata[cli.HandlersKey], &offered) != nil ||
		!slices.ContainsFunc(handlers, func(handler string) bool { return !slices.Contains(offered, handler) })
}

// underWay reports whether a job has ended, or is held by a conductor with all handlers.
func underWay(job *jobs.Job, conductors []jobs.Entity, handlers []string) bool {
	return job.State.Finished() || job.Claim != nil && slices.ContainsFunc(conductors, func(e jobs.Entity) bool {
		return e.Session == job.Claim.Session && offersAll(&e, handlers)
	})
}

func sayLacking(p *cli.Program, job *jobs.Job, conductors []jobs.Entity, handlers []string) {
	for _, handler := range handlers {
		var able, lacking []string
		for i := range conductors {
			if offersAll(&conductors[i], []string{handler}) {
				able = append(able, conductors[i].Name)
			} else {
				lacking = append(lacking, conductors[i].Name)
			}
		}
		switch {
		case len(lacking) == 0:
		case len(able) == 0:
			retry := ""
			if !job.ID.IsZero() {
				retry = fmt.Sprintf("; if the job is trashed before that, run `conductord job retry %s`", job.ID)
			}
			p.Note("warning: no live conductor of board %q has the handler %q, so the job will be trashed: "+
				"install the handler in a directory of conductor.handlers on %s%s", job.Board, handler, cli.Few(lacking), retry)
		default:
			p.Note("warning: of the live conductors of board %q, only %s can run the handler %q, so the job waits for them: "+
				"install the handler in a directory of conductor.handlers on %s too", job.Board, cli.Few(able), handler, cli.Few(lacking))
		}
	}
}
