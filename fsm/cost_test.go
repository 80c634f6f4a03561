package fsm_test

import (
	"fmt"
	"testing"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
)

// TestUpdateWritesWhatItChanges: the number and bytes of the rows that an update writes do not
// depend on the flow's size. The test covers updates of a step and of the flow itself.
func TestUpdateWritesWhatItChanges(t *testing.T) {
	type cost struct{ rows, bytes int }
	measure := func(t *testing.T, steps int) (costs []cost) {
		r := newRig(t)
		r.ok(open("ann"))
		token := r.claimed("ann", flowPosting("a"))
		var atoms []*v1.AtomChange
		for i := range steps {
			atoms = append(atoms, task(fmt.Sprintf("s%05d", i), ""))
		}
		r.ok(updateFlow(update("flow of a", token, 1, "running", atoms...)))
		name := fmt.Sprintf("s%05d", steps/2)
		for i, u := range []*v1.Command{
			updateFlow(update("flow of a", token, 2, "", task(name, "running", executing(1)))),
			updateFlow(update("flow of a", token, 3, "", task(name, "success", executed(1, `{"n":1}`)))),
			updateFlow(update("flow of a", token, 4, "reverting")),
		} {
			before, err := fsm.Rows(r.Machine)
			if err != nil {
				t.Fatal(err)
			}
			r.ok(u)
			after, err := fsm.Rows(r.Machine)
			if err != nil {
				t.Fatal(err)
			}
			costs = append(costs, cost{})
			for key, value := range after {
				if old, ok := before[key]; !ok || old != value {
					costs[i].rows++
					costs[i].bytes += len(key) + len(value)
				}
			}
		}
		return costs
	}
	small, large := measure(t, 10), measure(t, 5_000)
	const leeway = 16 // for numbers with more digits in a larger flow
	for i, what := range []string{"the mark of a step", "the end of a step", "a state of the flow"} {
		if small[i].rows == 0 || large[i].rows != small[i].rows || large[i].bytes > small[i].bytes+leeway {
			t.Errorf("%s writes %d rows of %d bytes in a flow of 10 steps, and %d of %d in one of 5,000", what,
				small[i].rows, small[i].bytes, large[i].rows, large[i].bytes)
		}
		t.Logf("%s: %d rows of %d bytes, and %d of %d", what, small[i].rows, small[i].bytes, large[i].rows, large[i].bytes)
	}
}
