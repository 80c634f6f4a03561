package dashboard

import (
	"context"
	"fmt"
	"math"
	"strconv"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// iterationLinks makes the links to the kept iterations of a job's flow, the latest first. The first iteration alone has
// none. shown is the iteration of the page; 0: the page shows none.
func (v *visit) iterationLinks(job string, latest, shown int) (links []link) {
	for number := latest; number > max(0, latest-jobs.KeptIterations); number-- {
		path := v.dashboard.options.Path + "flows/" + job
		if number < latest {
			path += "?iteration=" + strconv.Itoa(number)
		}
		links = append(links, link{Text: strconv.Itoa(number), Path: path, Current: number == shown})
	}
	return links
}

// goBack replaces the flow of the page by the flow of an earlier iteration. The page then shows only this flow: its job
// runs a later one.
func (v *visit) goBack(ctx context.Context, data *flowData, text string) error {
	latest := max(data.Flow.Iteration, 1)
	oldest := max(1, latest-jobs.KeptIterations+1)
	number, err := strconv.Atoi(text)
	switch {
	case err != nil || number < 1:
		return fmt.Errorf("%w: field iteration is %.64q, and must be a number from 1", jobs.ErrInvalid, text)
	case number == latest:
		return nil
	case number < oldest || number > latest:
		return fmt.Errorf("iteration %d of flow %s: %w: iterations %d to %d are kept", number, data.Flow.ID, jobs.ErrNotFound, oldest, latest)
	}
	id := data.Flow.Previous.String()
	for range latest - number - 1 {
		answer, err := ask(ctx, v.api.logbook.GetFlow, &v1.GetFlowRequest{Id: id, Skip: math.MaxInt32, Stale: true})
		if err != nil {
			return err
		}
		id = answer.GetFlow().GetPrevious()
	}
	flow, whole, err := v.readFlow(ctx, id)
	if err == nil && !whole {
		err = fmt.Errorf("flow %s changes faster than it can be read: %w", id, jobs.ErrUnavailable)
	}
	if err != nil {
		return err
	}
	data.Earlier, data.Flow, data.Job, data.message, data.Why = number, flow, nil, nil, nil
	return nil
}
