package fsm_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
)

// removedAtOnce is more than one entry can remove: the limit, and the rows of a job and a book of
// any size.
const removedAtOnce = 20_100

// grownBook is the log of a job and its book with flows of 10,000 steps each.
func grownBook(r *rig, name string, flows int) []fsm.Entry {
	b := &v1.Book{Id: id(name), Name: name}
	for i := range flows {
		b.Flows = append(b.Flows, book("", fmt.Sprintf("%s %d", name, i)).Flows...)
	}
	entries := []fsm.Entry{r.entry(saveBook(b))}
	const flowSteps, step = 10_000, 1_000
	for i := range flows {
		for first := 0; first < flowSteps; first += step {
			u := &v1.Update{Flow: id(fmt.Sprintf("%s %d", name, i)), Sequence: uint64(first/step + 1)}
			if first == 0 {
				u.State = "running"
			}
			for n := first; n < first+step; n++ {
				u.Atoms = append(u.Atoms, task(fmt.Sprintf("s%d", n), ""))
			}
			entries = append(entries, r.entry(updateFlow(u)))
		}
	}
	return entries
}

func (r *rig) apply(entries ...fsm.Entry) {
	r.Helper()
	results, err := r.Apply(entries)
	if err != nil {
		r.Fatal(err)
	}
	for _, entry := range results {
		for _, result := range entry {
			if result.GetError() != nil {
				r.Fatal(result)
			}
		}
	}
}

func (r *rig) rows() int {
	r.Helper()
	rows, err := fsm.Rows(r.Machine)
	if err != nil {
		r.Fatal(err)
	}
	return len(rows)
}

func (r *rig) sweepable() bool {
	r.Helper()
	found, err := r.Sweepable(r.now, time.Hour, 0)
	if err != nil {
		r.Fatal(err)
	}
	return found
}

// TestLargeBooksAreRemovedBitByBit: no entry removes more than its share of a large book. The
// remaining rows are invisible, survive a snapshot, block only the reuse of their ids, and are
// removed by sweeps.
func TestLargeBooksAreRemovedBitByBit(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	epoch := r.TimerEpoch()
	before := r.rows()
	r.apply(grownBook(r, "large", 5)...)
	removes := func(c *v1.Command) *v1.Result {
		t.Helper()
		rows := r.rows()
		result := r.ok(c)
		if removed := rows - r.rows(); removed > removedAtOnce || removed == 0 {
			t.Fatalf("one command has removed %d rows", removed)
		}
		return result
	}
	removes(destroyBook("large"))
	if _, err := r.Book(bookID("large")); err == nil {
		t.Fatal("the book is there")
	}
	if _, _, err := r.Flow(flowID("large 4"), fsm.Part{MaxBytes: fsm.Unbounded}); err == nil {
		t.Fatal("its flow is there")
	}
	if said := r.refused(saveBook(book("again", "large 4")), "conflict"); !strings.Contains(said, "not removed yet") {
		t.Fatal(said)
	}
	r.ok(saveBook(book("large", "another flow")))
	r.ok(destroyBook("large"))

	other := newRig(t)
	if err := other.Restore(bytes.NewReader(snapshot(t, r.Machine))); err != nil {
		t.Fatal(err)
	}
	if !other.sweepable() {
		t.Fatal("the snapshot does not contain the rows left to remove")
	}
	sweeps := 0
	for r.sweepable() {
		more := removes(sweep(epoch, time.Hour, 0, 500)).GetCount().GetMore()
		if sweeps++; more != r.sweepable() {
			t.Fatalf("sweep %d reports more = %t", sweeps, more)
		}
	}
	if after := r.rows(); sweeps != 2 || after != before {
		t.Fatalf("%d sweeps have left %d rows, and there were %d before", sweeps, after, before)
	}
	r.ok(saveBook(book("again", "large 4")))
}

// TestSweepsAreBoundedInRows: a sweep ends with the job that exceeds the bound, and the next
// sweep continues.
func TestSweepsAreBoundedInRows(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	epoch := r.TimerEpoch()
	r.ok(open("ann"))
	before := r.rows()
	for i := range 3 {
		name := fmt.Sprintf("large %d", i)
		r.apply(grownBook(r, name, 1)...)
		p := posting("job of "+name, "")
		p.BookId = id(name)
		r.ok(trash(ending("job of "+name, r.claimed("ann", p))))
	}
	r.now = r.now.Add(2 * time.Hour)
	for number, more := 1, true; more; number++ {
		rows := r.rows()
		count := r.ok(sweep(epoch, time.Hour, 0, 500)).GetCount()
		if removed := rows - r.rows(); removed > removedAtOnce {
			t.Fatalf("sweep %d has removed %d rows", number, removed)
		}
		more = count.GetMore()
	}
	if r.sweepable() || r.rows() > before+20 { // events, and the counters of the board
		t.Fatalf("there were %d rows, and there are %d", before, r.rows())
	}
}

// TestRemovalIsTheSameInAnyBatch: the rows that an entry removes do not depend on the other entries
// of its batch.
func TestRemovalIsTheSameInAnyBatch(t *testing.T) {
	one, all := newRig(t), newRig(t)
	log := []fsm.Entry{one.entry(beginLeadership())}
	for i := range 2 {
		log = append(log, grownBook(one, fmt.Sprintf("book %d", i), 3)...)
	}
	log = append(log, one.entry(destroyBook("book 0"), destroyBook("book 1")), one.entry(sweep(1, time.Hour, 0, 10)))
	for _, entry := range log {
		one.apply(entry)
	}
	all.apply(log...)
	if digest(t, one.Machine) != digest(t, all.Machine) {
		t.Fatal("two batchings of a log have left different states")
	}
	if !one.sweepable() {
		t.Fatal("nothing is left: the test tests nothing")
	}
}
