package flow

import (
	"maps"
	"slices"

	"github.com/conductord/conductord/logbook"
)

// SameWorkerAs binds a step of OnWorker to the worker that did an earlier step: the worker of
// that step's last successful execution. If that worker's session has ended, a worker of the same
// name gets the step. While no such worker lives, the step waits, for at most its Patience. The
// revert is bound in the same way. If no worker did the earlier step, because it was ignored or
// completed by hand, any worker may do this one.
//
// The earlier step must be a step of OnWorker that always comes before this one. In an Each, it
// is the step of the same instance.
func SameWorkerAs(step string) StepOption {
	return stepOption(func(s *Step) {
		if s.sameWorkerAs = step; step == "" {
			s.fault("the name of the step on the same worker is empty")
		}
	})
}

// SameWorkerAs returns the earlier step whose worker a step is bound to: see the option
// SameWorkerAs. False: the step is bound to no worker.
func (p *Plan) SameWorkerAs(step int) (earlier int, bound bool) {
	earlier, bound = p.workerOf[step]
	return earlier, bound
}

// bindWorker finds the earlier step whose worker also gets this step. It gives the earlier step a
// column, so that checkWorkers can look up the vertices after it.
func (r *resolver) bindWorker(number int, instance int32) {
	p := r.compiler.plan
	step := p.steps[number]
	earlier, found := -1, false
	for at := step.at; !found; at, _ = logbook.CutInstance(at) {
		if earlier, found = p.index[step.sameWorkerAs+at]; at == "" {
			break
		}
	}
	reason := ""
	switch _, can := step.WorkerStep(); {
	case !can:
		reason = "and is not a worker step itself"
	case !found:
		reason = "which is not in the flow"
	case !r.sees(instance, r.instances[earlier]):
		reason = "which is inside a loop; only steps of the same loop can name it"
	default:
		if _, can := p.steps[earlier].WorkerStep(); !can {
			reason = "which is not a worker step"
		}
	}
	if reason != "" {
		r.compiler.fault(ErrInvalid, "step %q runs on the same worker as %q, %s", step.name, step.sameWorkerAs, reason)
		return
	}
	r.column[earlier] = 0 // numbered by finish
	if p.workerOf == nil {
		p.workerOf = make(map[int]int)
	}
	p.workerOf[number] = earlier
}

// sees reports whether an instance is another one, or in it.
func (r *resolver) sees(instance, other int32) bool {
	for instance >= 0 && instance != other {
		instance = r.compiler.instances[instance].parent
	}
	return instance == other
}

// checkWorkers reports steps with SameWorkerAs that do not wait for the earlier step.
func (r *resolver) checkWorkers() {
	p := r.compiler.plan
	for _, step := range slices.Sorted(maps.Keys(p.workerOf)) {
		if earlier := p.workerOf[step]; !r.before[step].has(r.column[earlier]) {
			r.compiler.fault(ErrInvalid, "step %q runs on the same worker as %q, which does not always come first: make this step wait for it",
				p.steps[step].name, p.steps[earlier].name)
		}
	}
}
