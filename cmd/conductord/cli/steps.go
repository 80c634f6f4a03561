package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// FlowReader reads jobs and their flows.
type FlowReader interface {
	jobs.Reader
	FlowDetail(ctx context.Context, id logbook.FlowID) (logbook.FlowDetail, error)
}

// FindFlow reads a flow by its job's id or by its own id.
func FindFlow(ctx context.Context, cluster FlowReader, id uuid.UUID) (logbook.FlowDetail, error) {
	flowID := logbook.FlowID{UUID: id}
	job, err := cluster.Job(ctx, jobs.JobID{UUID: id})
	switch {
	case err == nil && job.Flow.IsZero():
		return logbook.FlowDetail{}, fmt.Errorf("job %s has no flow: %w", id, jobs.ErrNotFound)
	case err == nil:
		flowID = job.Flow
	case !errors.Is(err, jobs.ErrNotFound):
		return logbook.FlowDetail{}, Because(err, "read job %s", id)
	}
	detail, err := cluster.FlowDetail(ctx, flowID)
	return detail, Because(err, "read flow %s", flowID)
}

// StepsOf are the names of all known steps of a flow.
func StepsOf(detail *logbook.FlowDetail) []string {
	names := PlannedSteps(detail)
	for i := range detail.Atoms {
		if name := detail.Atoms[i].Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// PlannedSteps are the names of the steps in a flow's recorded definition or in its document;
// nil if neither is known here.
func PlannedSteps(detail *logbook.FlowDetail) []string {
	var names []string
	if detail.Definition != nil {
		if steps, err := detail.Definition.Steps(); err == nil {
			for _, step := range steps {
				names = append(names, step.Name)
			}
			return names
		}
	}
	if plan := spec.PlanOf(detail); plan != nil {
		for _, step := range plan.Steps() {
			names = append(names, step.Name())
		}
	}
	return names
}
