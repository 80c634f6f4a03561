package cluster

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
)

// The slots of activity of one day, for a chart.
const (
	activitySlot  = 5 * time.Minute
	activitySlots = int64(24 * time.Hour / activitySlot)
)

// Activity counts events of jobs in each slot of the last day, in the memory of this node. Its
// methods may be called concurrently.
type Activity struct {
	Now func() time.Time // time of the cluster

	mu    sync.Mutex
	first int64                        // number of the first counted slot, since 1970; 0: none yet
	last  int64                        // number of the latest slot
	slots [activitySlots]activityCount // a ring, by slot number
}

// activityCount counts the events of a slot.
type activityCount struct{ posted, finished, failed uint64 }

// Add counts the posted and finished jobs of a batch of entries.
func (a *Activity) Add(changes fsm.Changes) {
	if changes.Posted == 0 && len(changes.Finished) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance()
	slot := &a.slots[a.last%activitySlots]
	slot.posted += uint64(changes.Posted)
	slot.finished += uint64(len(changes.Finished))
	slot.failed += uint64(changes.Failed)
}

// advance starts the slots up to now. A clock that goes back changes nothing.
func (a *Activity) advance() {
	slot := a.Now().UnixNano() / int64(activitySlot)
	if a.first == 0 {
		a.first, a.last = slot, slot
	}
	for i := max(a.last+1, slot-activitySlots+1); i <= slot; i++ {
		a.slots[i%activitySlots] = activityCount{}
	}
	a.last = max(a.last, slot)
}

// answer answers the call with the slots since the node's start, at most of the last day.
func (a *Activity) answer(context.Context, *connect.Request[conductordv1.ActivityRequest]) (*connect.Response[conductordv1.ActivityResponse], error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance()
	from := max(a.first, a.last-activitySlots+1)
	answer := &conductordv1.ActivityResponse{Since: timestamppb.New(time.Unix(0, from*int64(activitySlot))), Slot: durationpb.New(activitySlot)}
	for i := from; i <= a.last; i++ {
		count := a.slots[i%activitySlots]
		answer.Slots = append(answer.Slots, &conductordv1.ActivitySlot{Posted: count.posted, Finished: count.finished, Failed: count.failed})
	}
	return connect.NewResponse(answer), nil
}
