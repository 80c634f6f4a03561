package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// sleeper takes as many seconds as its argument x says, and notes the calls that run in parallel.
type sleeper struct {
	mu            sync.Mutex
	running, most int
	order         []string
}

func (s *sleeper) begin(call *flow.Call) (end func()) {
	var seconds int
	_ = json.Unmarshal(call.Arguments["x"], &seconds)
	s.mu.Lock()
	s.running++
	s.most = max(s.most, s.running)
	s.order = append(s.order, call.Step)
	s.mu.Unlock()
	<-time.After(time.Duration(seconds) * time.Second)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running--
	}
}

func (s *sleeper) Execute(_ context.Context, call *flow.Call) (any, error) {
	s.begin(call)()
	return nil, nil
}

func (s *sleeper) Revert(_ context.Context, call *flow.Call) error {
	s.begin(call)()
	return nil
}

// TestElementsUnderWay: an element that runs when an undo begins counts for the limit of the undo.
func TestElementsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{}
		fails := flow.NewStep("fails", anyTask(func() (any, error) {
			<-time.After(2500 * time.Millisecond)
			return nil, errors.New("woot")
		}))
		root := flow.Unordered("f", flow.Each("e", "list", "x", flow.NewStep("a", s, flow.Requires("x")), flow.AtOnce(2)), fails)
		_, err := engine.RunLocal(t.Context(), root, logbook.Values{"list": json.RawMessage("[6,1,1,6,1]")})
		if err == nil || s.most != 2 || s.running > 0 || len(s.order) != 8 {
			t.Errorf("%v; %d ran in parallel: %v", err, s.most, s.order)
		}
	})
}

// TestSlowElements: an element that takes long takes one place, and the others use the rest. An undo
// is limited as well, and goes from the last element to the first.
func TestSlowElements(t *testing.T) {
	for _, row := range []struct {
		list   string
		atOnce int
		fails  bool
		took   time.Duration
		last   string // call
	}{
		{list: "[6,1,1,1,1,1]", atOnce: 2, took: 6 * time.Second},
		{list: "[1,1,1,1,1,6]", atOnce: 3, took: 7 * time.Second},
		{list: "[6,1,1]", atOnce: 1, took: 8 * time.Second, last: "a[2]"},
		{list: "[6,1,1]", atOnce: 3, took: 6 * time.Second},
		{list: "[4,1,1,1,1]", atOnce: 2, fails: true, took: 4*time.Second + 6*time.Second, last: "a[0]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &sleeper{}
			last := flow.Node(flow.NewStep("last", says("")))
			if row.fails {
				last = flow.NewStep("last", anyTask(func() (any, error) { return nil, context.Canceled }))
			}
			root := flow.Linear("f", flow.Each("e", "list", "x", flow.NewStep("a", s, flow.Requires("x")), flow.AtOnce(row.atOnce)), last)
			began := time.Now()
			_, err := engine.RunLocal(t.Context(), root, logbook.Values{"list": json.RawMessage(row.list)})
			if order := strings.Join(s.order, " "); (err != nil) != row.fails || s.most > row.atOnce || time.Since(began) != row.took || !strings.HasSuffix(order, row.last) {
				t.Errorf("%s, %d at once: %v; it took %s, %d ran in parallel: %s", row.list, row.atOnce, err, time.Since(began), s.most, order)
			}
		})
	}
}
