package fsm

import (
	"fmt"
	"slices"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Step reads a step of a job. ErrNotFound if the job has no flow, or if its flow has no such step. A flow whose
// definition is missing, encrypted, or only a hash can have any step. ErrInvalid for a step that runs once for each
// element of a list: only its instances have records.
func (m *Machine) Step(id jobs.JobID, name string) (step jobs.Step, err error) {
	if err := logbook.MaxLimits.CheckName("step", name); err != nil {
		return step, err
	}
	err = m.read(func(v *view) error {
		j, err := v.jobByID(id)
		if err != nil {
			return err
		}
		step, err = v.step(j, name)
		return err
	})
	return step, err
}

func (v *view) step(j *jobRecord, name string) (jobs.Step, error) {
	step := jobs.Step{Job: j.ID, JobState: j.State, Flow: j.Flow, Atom: logbook.AtomDetail{Name: name}}
	if j.Flow.IsZero() {
		return step, fmt.Errorf("the job has no flow: %w", jobs.ErrNotFound)
	}
	record := v.flow(j.Flow)
	if record == nil { // a finished job can outlive its book
		return step, fmt.Errorf("flow %s of job %s: %w", j.Flow, j.ID, logbook.ErrNotFound)
	}
	step.FlowState = record.State
	if value := v.get(tableAtom, atomKey(j.Flow, name)); value != nil {
		step.Atom, _ = v.wholeAtom(j.Flow, value)
	} else if err := v.plannedStep(record, &step); err != nil {
		return step, err
	}
	step.Outcome = step.Judge()
	return step, nil
}

// plannedStep fills in a step that has no record, by the definition of its flow.
func (v *view) plannedStep(record *flowRecord, step *jobs.Step) error {
	name := step.Atom.Name
	first := name + "[0]"
	if len(first) <= maxKeyName && v.get(tableAtom, atomKey(record.ID, first)) != nil {
		return &logbook.InvalidError{Field: "step", Reason: fmt.Sprintf("%.64q runs once for each element of a list: name one of its runs, such as %.64q", name, first)}
	}
	missing := fmt.Errorf("its flow has no such step: %w", jobs.ErrNotFound)
	base, isInstance := logbook.CutInstance(name)
	for more := isInstance; more; {
		base, more = logbook.CutInstance(base)
	}
	definition, _ := v.definition(record.built)
	if definition == nil {
		return nil
	}
	steps, err := definition.Steps()
	if err != nil || steps == nil {
		return nil
	}
	at := slices.IndexFunc(steps, func(s logbook.DefinedStep) bool { return s.Name == base })
	switch {
	case at < 0:
		return missing
	case !isInstance:
		step.Atom = logbook.NewAtom(name, steps[at].Kind)
		step.Atom.Version = steps[at].Version
	case step.FlowState.Finished() || step.JobState.Finished():
		return missing // no instance starts any more
	}
	return nil
}
