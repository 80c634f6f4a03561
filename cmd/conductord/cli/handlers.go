package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/jobs"
)

// HandlersKey is where the entity of a daemon's conductor names its handlers.
const HandlersKey = "handlers"

// warnOfHandlers warns of handlers that a posted flow document names and that the live
// conductors for the job lack. A conductor that names no handlers may have them; and one may
// come later, so nothing is refused.
func (p *Program) warnOfHandlers(ctx context.Context, cluster Cluster, job *jobs.Job, posting *jobs.Posting) {
	if posting.Book == nil || len(posting.Book.Flows) != 1 || posting.Book.Flows[0].Factory.Name != spec.Kind {
		return
	}
	document, err := spec.Parse(posting.Book.Flows[0].Factory.Args, "flow.json")
	if err != nil {
		return
	}
	conductors, err := cluster.Entities(ctx, jobs.EntityConductor)
	if err != nil {
		return // the job is posted, and the warning is an extra
	}
	for _, handler := range document.Handlers() {
		var able, lacking []string
		for i := range conductors {
			var offered []string
			switch {
			case !conductors[i].Takes(job):
			case json.Unmarshal(conductors[i].Metadata[HandlersKey], &offered) != nil || slices.Contains(offered, handler):
				able = append(able, conductors[i].Name)
			default:
				lacking = append(lacking, conductors[i].Name)
			}
		}
		if len(lacking) == 0 {
			continue
		}
		remedy := fmt.Sprintf("put it into a directory of conductor.handlers of %s and restart", strings.Join(lacking, ", "))
		if len(able) == 0 {
			p.Note("warning: no live conductor of board %q has the handler %q, and without it the job is trashed: %s", job.Board, handler, remedy)
		} else {
			p.Note("warning: of the conductors of board %q, only %s can run the handler %q: %s", job.Board, strings.Join(able, ", "), handler, remedy)
		}
	}
}
