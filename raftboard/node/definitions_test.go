package node_test

import (
	"testing"

	"github.com/conductord/conductord/logbook"
)

// TestDefinitionsOutliveFlows: a flow keeps its definition when the flow that brought the
// definition is removed. A client that has sent the definition before can post it by id, even if no
// flow has it.
func TestDefinitionsOutliveFlows(t *testing.T) {
	t.Parallel()
	client := newCluster(t, 1).startAll().client()
	built := logbook.Definition{Hash: "h", Packed: []byte("steps")}
	run := func() (logbook.BookID, logbook.FlowID) {
		book := logbook.Book{ID: logbook.NewBookID(), Name: "b", Flows: []logbook.FlowDetail{{ID: logbook.NewFlowID(), Name: "f", Factory: logbook.Factory{Name: "k"}}}}
		flow := book.Flows[0].ID
		if err := client.SaveBook(t.Context(), book); err != nil {
			t.Fatal(err)
		}
		verdicts, err := client.Update(t.Context(), logbook.Update{Flow: flow, Sequence: 1, State: logbook.FlowRunning, Definition: &built},
			logbook.Update{Flow: flow, Sequence: 2, State: logbook.FlowSuccess})
		if err != nil || verdicts[0] != nil || verdicts[1] != nil {
			t.Fatalf("got %v, %v", verdicts, err)
		}
		return book.ID, flow
	}
	holds := func(flow logbook.FlowID) {
		detail, err := client.FlowDetail(t.Context(), flow)
		if err != nil || detail.State != logbook.FlowSuccess || detail.Definition == nil || string(detail.Definition.Packed) != "steps" {
			t.Fatalf("the flow is %+v, %v", detail, err)
		}
	}
	first, _ := run()
	second, flow := run()
	for _, book := range []logbook.BookID{first, second} {
		holds(flow)
		if err := client.DestroyBook(t.Context(), book); err != nil {
			t.Fatal(err)
		}
	}
	_, flow = run()
	holds(flow)
}
