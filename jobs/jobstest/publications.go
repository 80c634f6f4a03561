package jobstest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// publication makes a publication to topic pay with a key.
func (k *kit) publication(key, id string) jobs.Publication {
	return jobs.Publication{Board: k.board, Topic: "pay", Key: key, Signal: logbook.Signal{ID: id, Data: json.RawMessage(`"` + id + `"`)}}
}

// publish publishes, and checks the answer.
func (k *kit) publish(p jobs.Publication, want jobs.PublishReceipt) {
	k.Helper()
	receipt, err := k.Board.Publish(k.ctx, p)
	if err != nil || receipt != want {
		k.Errorf("Publish to key %s with id %s: got %+v, %v, want %+v", p.Key, p.Signal.ID, receipt, err, want)
	}
}

// unheard publishes to nobody.
func (k *kit) unheard(p jobs.Publication) {
	k.Helper()
	_, err := k.Board.Publish(k.ctx, p)
	k.wants("Publish to nobody", err, jobs.ErrNobodyWaits)
}

// subscribes lets a step of a new job wait for topic pay with a key.
func (k *kit) subscribes(job, key string) jobs.Claimed {
	k.Helper()
	claimed := k.travelling(k.session("worker"), job)
	k.wants("Update", k.update(waitsForTopic(claimed, 1, "fly", key)), nil)
	return claimed
}

func waitsForTopic(claimed jobs.Claimed, sequence uint64, step, key string) logbook.Update {
	u := waitsFor(claimed, sequence, step, 1)
	u.Atoms[0].Attempts[0].Wait.Topic, u.Atoms[0].Attempts[0].Wait.Key = "pay", key
	return u
}

func publishedToOne(k *kit) {
	k.subscribes("other key", "8")
	first := k.subscribes("first", "7")
	second := k.subscribes("second", "7")
	k.signal(first.Job.ID, "pay", "by job", jobs.SignalKept) // a wait for a topic takes no signal to the job
	k.publish(k.publication("7", "one"), jobs.PublishReceipt{Answer: jobs.SignalTaken, Waits: 1})
	k.same("the signal of the first", k.taken(first.Job.Flow, "fly"), "one")
	k.same("the signal of the second", k.taken(second.Job.Flow, "fly"), "")
	k.publish(k.publication("7", "one"), jobs.PublishReceipt{Answer: jobs.SignalRepeated, First: jobs.SignalTaken, Waits: 1})
	late := release(first)
	late.Delay = time.Hour
	k.wants("Abandon by an owner that does not know", k.Board.Abandon(k.ctx, late), nil)
	k.stands(first.Job.ID, jobs.StateClaimable)
	late = release(second)
	late.Delay, late.Waits = time.Hour, true
	k.wants("Abandon by a waiting owner", k.Board.Abandon(k.ctx, late), nil)
	k.stands(second.Job.ID, jobs.StateWaiting)
	k.publish(k.publication("7", "two"), jobs.PublishReceipt{Answer: jobs.SignalTaken, Waits: 1})
	k.same("the signal of the second", k.taken(second.Job.Flow, "fly"), "two")
	k.stands(second.Job.ID, jobs.StateClaimable)
	k.unheard(k.publication("7", "three"))
	events := k.events(jobs.Watch{Job: second.Job.ID, Kinds: []jobs.EventKind{jobs.EventSignalled}}, 1)
	if events[0].Signal != "pay" || events[0].Steps[0].Name != "fly" {
		k.Errorf("the event is %s", render(events[0]))
	}
}

func publishedToAll(k *kit) {
	first, second, over := k.subscribes("first", "7"), k.subscribes("second", "7"), k.subscribes("over", "7")
	trashed := release(over)
	trashed.Reason = "broken"
	k.wants("Trash", k.Board.Trash(k.ctx, trashed), nil)
	k.wants("Suspend", k.Board.Suspend(k.ctx, jobs.JobCommand{Job: second.Job.ID}), nil)
	all := k.publication("7", "one")
	all.To = jobs.PublishToAll
	k.publish(all, jobs.PublishReceipt{Answer: jobs.SignalTaken, Waits: 2})
	k.publish(all, jobs.PublishReceipt{Answer: jobs.SignalRepeated, First: jobs.SignalTaken, Waits: 2})
	for _, claimed := range []jobs.Claimed{first, second} {
		k.same("the signal", k.taken(claimed.Job.Flow, "fly"), "one")
	}
	k.same("the signal of the trashed job", k.taken(over.Job.Flow, "fly"), "")
	all.Signal.ID = "two"
	k.unheard(all)
	k.wants("Retry", k.Board.Retry(k.ctx, jobs.JobCommand{Job: over.Job.ID}), nil)
	k.publish(all, jobs.PublishReceipt{Answer: jobs.SignalTaken, Waits: 1})
	k.same("the signal after the retry", k.taken(over.Job.Flow, "fly"), "two")
}

func keptPublications(k *kit) {
	k.subscribes("other key", "8")
	kept := k.publication("7", "one")
	k.unheard(kept)
	kept.Keep = time.Hour
	k.publish(kept, jobs.PublishReceipt{Answer: jobs.SignalKept})
	k.publish(kept, jobs.PublishReceipt{Answer: jobs.SignalRepeated, First: jobs.SignalKept})
	kept.Signal.ID = "two"
	k.publish(kept, jobs.PublishReceipt{Answer: jobs.SignalKept})
	for _, want := range []string{"one", "two", ""} {
		claimed := k.subscribes("waits", "7")
		k.same("the signal", k.taken(claimed.Job.Flow, "fly"), want)
	}
	kept.Signal.ID = "three"
	k.publish(kept, jobs.PublishReceipt{Answer: jobs.SignalTaken, Waits: 1})
}

func invalidPublications(k *kit) {
	k.subscribes("other key", "8") // makes the board
	kept := k.publication("7", "x")
	kept.Keep = time.Hour
	all := kept
	all.To = jobs.PublishToAll
	_, err := k.Board.Publish(k.ctx, all)
	k.wants("Publish to all with keep", err, jobs.ErrInvalid)
	_, err = k.Board.Publish(k.ctx, jobs.Publication{Board: k.board, Topic: "pay", Signal: logbook.Signal{ID: "x"}})
	k.wants("Publish without a key", err, jobs.ErrInvalid)
	const size = logbook.MaxSignalData / 2 // encryption makes the data larger
	kept.Signal.Data = json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
	for i := range jobs.MaxKeptBytes / size {
		kept.Signal.ID = fmt.Sprint(i)
		if _, err = k.Board.Publish(k.ctx, kept); err != nil {
			break
		}
	}
	k.wants("Publish over the size", err, jobs.ErrPublicationsFull)
	k.unheard(k.publication("7", "later"))
}
