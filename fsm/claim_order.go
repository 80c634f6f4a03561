package fsm

import (
	"bytes"
	"cmp"
	"container/heap"
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"strings"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/tables"
	"github.com/conductord/conductord/jobs"
)

// Claim order: higher priority first, then jobs at the front, the latest of them first, then posting
// order. With ageing, waiting raises the priority (ageing.go). The keys of a queue, which appendOrder
// writes, have this order. firstClaimable merges the queues of a request.

// maxGrantedBytes bounds the stored bytes of the jobs of one answer, so that the answer fits into one
// message. If an answer could not be sent, its owner would not know of its claims.
const maxGrantedBytes = 1 << 20

// maxPassed bounds the overdue jobs that one request skips. The leader is about to
// cancel them, which wakes the callers that wait.
const maxPassed = 1_000

// firstClaimable reads the first jobs of all queues of a request, in claim order. It returns at most
// most jobs and maxGrantedBytes, and at least one job of any size. Each queue is sorted, so
// firstClaimable compares only the heads of the queues. The cost depends on the number of queues and
// the answer, not on the number of waiting jobs.
func (t *txn) firstClaimable(request jobs.ClaimRequest, most int) []*jobRecord {
	var heads queueHeads
	for queue := range t.queuesOf(request) {
		heads = append(heads, &queueHead{queueStart: queue, order: queue.first[len(queue.prefix):], raised: queue.ageing.Raised(t.now)})
	}
	heap.Init(&heads)
	var found []*jobRecord
	passed := 0
	for size := 0; len(heads) > 0; {
		sequence := sequenceAtEnd(heads[0].order)
		j := t.job(sequence)
		late := t.overdue(j)
		if late {
			if passed++; passed > maxPassed {
				return found
			}
		}
		// A job that was claimed and released in this entry would get the same token again, and its
		// last owner could write: see entryUse.
		if t.mayGrant(j) && !late {
			if size += t.answerSize(j); size > maxGrantedBytes && len(found) > 0 {
				return found
			}
			if found = append(found, j); len(found) == most {
				return found
			}
		}
		if heads[0].advance(&t.view) {
			heap.Fix(&heads, 0)
		} else {
			heap.Pop(&heads)
		}
	}
	return found
}

// answerSize returns about the size of the answer to the claim of a job, without the atoms of its flow,
// which the answering node bounds.
func (v *view) answerSize(j *jobRecord) int {
	key := sequenceKey(j.Sequence)
	size := len(v.get(tableJob, key)) + len(v.get(tablePosting, key)) + len(v.get(tableEvidence, key))
	if !j.Flow.IsZero() {
		size += len(v.get(tableBook, j.Book.UUID[:])) + len(v.get(tableFlow, j.Flow.UUID[:])) + len(v.get(tableFlowBody, j.Flow.UUID[:]))
	}
	return size
}

// Suits reports whether a ClaimNext request can get jobs of the queue.
func (l Queue) Suits(request *jobs.ClaimRequest) bool {
	board := slices.Contains(request.Boards, l.Board) || (len(request.Boards) == 0 && l.Board == jobs.DefaultBoard)
	kind := len(request.Kinds) == 0 || slices.Contains(request.Kinds, l.Kind)
	return board && kind && offersAll(request.Labels, l.Labels)
}

// QueuesOfPostings yields the queues that jobs of postings enter at once: see queueOfPosting.
func QueuesOfPostings(postings []*v1.Posting) iter.Seq[Queue] {
	return func(yield func(Queue) bool) {
		for _, posting := range postings {
			if queue, claimable := queueOfPosting(posting); claimable && !yield(queue) {
				return
			}
		}
	}
}

// queueOfPosting returns the queue that the job of a posting enters at once. It returns false if the
// posting alone does not decide that: the job waits for a time or a release, or its flow is already in
// the logbook.
func queueOfPosting(p *v1.Posting) (Queue, bool) {
	if p.GetHold() || p.GetNotBefore() != nil {
		return Queue{}, false
	}
	queue := Queue{Board: cmp.Or(p.GetBoard(), jobs.DefaultBoard), Kind: p.GetKind()}
	if p.GetBook() != nil || p.GetBookId() != "" {
		flows := p.GetBook().GetFlows()
		i := 0
		if p.GetFlow() != "" {
			i = slices.IndexFunc(flows, func(f *v1.FlowDetail) bool { return f.GetId() == p.GetFlow() })
		}
		if i < 0 || i >= len(flows) {
			return Queue{}, false
		}
		queue.Kind = flows[i].GetFactory().GetName()
	}
	if len(p.GetLabels()) > 0 {
		queue.Labels = labelText(slices.Sorted(slices.Values(p.GetLabels())))
	}
	return queue, true
}

// offersAll reports whether all labels of a text are offered.
func offersAll(offered []string, text string) bool {
	for label := range strings.SplitSeq(text, labelEnd) {
		if text != "" && !slices.Contains(offered, label) {
			return false
		}
	}
	return true
}

// queueStart is a queue that is not empty.
type queueStart struct {
	table  table
	prefix []byte           // prefix of the queue's keys
	first  []byte           // key of its first job
	ageing jobs.BoardAgeing // ageing of its board
}

// queuesOf yields the queues with jobs for a request, each once, without the queues of paused boards. A
// request without kinds uses the tables for any kind: they have one queue for the board's jobs without
// labels, and one queue for each set of labels.
func (v *view) queuesOf(request jobs.ClaimRequest) iter.Seq[queueStart] {
	f := queueFinder{offered: slices.Sorted(slices.Values(request.Labels)), plain: shelf{table: tableClaimable}, labelled: shelf{table: tableLabelled}}
	if len(request.Kinds) == 0 {
		f.plain.table, f.labelled.table = tableAnyKind, tableLabelledAnyKind
	}
	f.plain.cursor = v.cursor(f.plain.table)
	if len(f.offered) > 0 {
		f.labelled.cursor = v.cursor(f.labelled.table)
	}
	boards := request.Boards
	if len(boards) == 0 {
		boards = []string{jobs.DefaultBoard}
	}
	return func(yield func(queueStart) bool) {
		for _, board := range distinct(boards) {
			head, _ := v.board(board)
			if head.Pause != nil {
				continue
			}
			found := func(queue queueStart) bool {
				queue.ageing = head.Ageing
				return yield(queue)
			}
			if !f.onBoard(board, request.Kinds, found) {
				return
			}
		}
	}
}

// queueFinder looks for the queues of one request.
type queueFinder struct {
	offered         []string // labels, sorted
	plain, labelled shelf    // jobs without labels, and with labels
}

// shelf is a table of queues, with one cursor for all searches in it.
type shelf struct {
	table  table
	cursor *tables.Cursor
}

// onBoard, and the functions that it calls, return false to end the search.
func (f *queueFinder) onBoard(board string, kinds []string, found func(queueStart) bool) bool {
	if len(kinds) == 0 {
		return f.beginningWith(boardKey(board), found)
	}
	for _, kind := range distinct(kinds) {
		if _, prefix := queueKey(Queue{Board: board, Kind: kind}); !f.beginningWith(prefix, found) {
			return false
		}
	}
	return true
}

func (f *queueFinder) beginningWith(prefix []byte, found func(queueStart) bool) bool {
	first, _ := f.plain.cursor.Seek(prefix)
	if bytes.HasPrefix(first, prefix) && !found(queueStart{table: f.plain.table, prefix: prefix, first: first}) {
		return false
	}
	return len(f.offered) == 0 || f.wantingSome(prefix, found)
}

// wantingSome finds the queues whose labels are all offered. The labels of a set are sorted, so one seek
// skips all sets that start with the same unoffered label. Each other queue costs one seek, which ends at
// the first key of the next queue. The cost grows with the sets that have an offered label, not with the
// number of waiting jobs.
func (f *queueFinder) wantingSome(prefix []byte, found func(queueStart) bool) bool {
	cursor, size := f.labelled.cursor, len(prefix)
	for key, _ := cursor.Seek(prefix); bytes.HasPrefix(key, prefix) && len(key) > size; {
		end := size + 1 + int(key[size])
		if end > len(key) {
			return true // invalid key of a queue: reported when its job is read
		}
		queue := key[:end]
		next, suits := nextWanted(f.offered, string(queue[size+1:]))
		switch {
		case suits:
			if !found(queueStart{table: f.labelled.table, prefix: queue, first: key}) {
				return false
			}
			key, _ = cursor.Seek(afterQueue(queue))
		case next != "":
			// Seek past the keys of this text too, because the next text can start with this text.
			key, _ = cursor.Seek(slices.MaxFunc([][]byte{append(bytes.Clone(queue[:size+1]), next...), afterQueue(queue)}, bytes.Compare))
		case queue[size] == maxKeyName:
			return true
		default: // texts are sorted by their size first
			key, _ = cursor.Seek(append(bytes.Clone(prefix), queue[size]+1))
		}
	}
	return true
}

// distinct removes duplicate names, and names that no job can have.
func distinct(names []string) []string {
	var found []string
	for _, name := range names {
		if len(name) <= maxKeyName && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	return found
}

// nextWanted reports whether all labels of a text are offered. If not, next is the smallest prefix of a
// later text whose labels can all be offered; empty if there is none. Names have no characters below the
// line end, so the order of texts is the order of their labels.
func nextWanted(offered []string, text string) (next string, suits bool) {
	wanted := strings.Split(text, labelEnd)
	first := slices.IndexFunc(wanted, func(label string) bool {
		_, found := slices.BinarySearch(offered, label)
		return !found
	})
	if first < 0 {
		return "", true
	}
	for i := first; i >= 0; i-- {
		at, found := slices.BinarySearch(offered, wanted[i])
		if found {
			at++
		}
		if at < len(offered) {
			return labelText(append(slices.Clone(wanted[:i]), offered[at])), false
		}
	}
	return "", false
}

// leap finds the distinct continuations of a prefix in a table's keys, by the given number of names.
func (v *view) leap(tab table, prefix []byte, names int) [][]byte {
	var found [][]byte
	cursor := v.cursor(tab)
	key, _ := cursor.Seek(prefix)
	for bytes.HasPrefix(key, prefix) {
		end := len(prefix)
		for range names {
			if end >= len(key) {
				return found
			}
			end += 1 + int(key[end])
		}
		if end > len(key) {
			return found
		}
		queue := bytes.Clone(key[:end])
		found = append(found, queue)
		key, _ = cursor.Seek(afterQueue(queue))
	}
	return found
}

// afterQueue returns a key after all keys of the queue. A key continues with four bytes of priority, and
// eight bytes of sequence or zeros.
func afterQueue(queue []byte) []byte {
	return append(bytes.Clone(queue), bytes.Repeat([]byte{0xff}, 4+sequenceSize)...)
}

// queueHead is the first unread job of a queue.
type queueHead struct {
	queueStart
	order  []byte         // inverted rank and sequence
	raised int64          // see counts; heads are compared by counts, and then by the rest of order
	cursor *tables.Cursor // nil while the first job of the queue is the head
}

// advance moves the head to the next job; false at the end of the queue.
func (h *queueHead) advance(v *view) bool {
	if h.cursor == nil {
		h.cursor = v.cursor(h.table)
		h.cursor.Seek(h.first)
	}
	key, _ := h.cursor.Next()
	if !bytes.HasPrefix(key, h.prefix) {
		return false
	}
	h.order = key[len(h.prefix):]
	return true
}

// queueHeads is a heap with the first job in claim order at index 0.
type queueHeads []*queueHead

func (h queueHeads) Len() int { return len(h) }
func (h queueHeads) Less(i, j int) bool {
	a, b := h[i], h[j]
	if first := cmp.Compare(counts(b.order, b.raised), counts(a.order, a.raised)); first != 0 {
		return first < 0
	}
	return bytes.Compare(a.order[prioritySize:], b.order[prioritySize:]) < 0
}
func (h queueHeads) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *queueHeads) Push(x any)   { *h = append(*h, x.(*queueHead)) }
func (h *queueHeads) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// queueKey returns the table and the key prefix of a queue. Jobs with labels have their own table, so
// requests without labels never read them.
func queueKey(queue Queue) (table, []byte) { return appendQueue(nil, queue) }

func appendQueue(key []byte, queue Queue) (table, []byte) {
	key = appendName(appendName(key, queue.Board), queue.Kind)
	if queue.Labels == "" {
		return tableClaimable, key
	}
	return tableLabelled, appendName(key, queue.Labels)
}

func queueOf(j *jobFacts) Queue {
	return Queue{j.Board, j.Kind, labelText(j.Labels), j.Reserved != nil}
}

// labelText joins sorted labels into one text. Names contain no line ends.
func labelText(labels []string) string { return strings.Join(labels, labelEnd) }

const labelEnd = "\n"

// claimableKey returns the key of a claimable job in its queue.
func claimableKey(m *memory, job *jobFacts) (table, []byte) {
	queue := queueOf(job)
	where, key := appendQueue(m.room(len(queue.Board)+len(queue.Kind)+len(queue.Labels)+orderRoom), queue)
	return where, appendOrder(key, job)
}

// anyKindKey returns the key of a claimable job among the jobs of all kinds with the same board and
// labels.
func anyKindKey(m *memory, job *jobFacts) (table, []byte) {
	labels := labelText(job.Labels)
	key := appendName(m.room(len(job.Board)+len(labels)+orderRoom), job.Board)
	if labels == "" {
		return tableAnyKind, appendOrder(key, job)
	}
	return tableLabelledAnyKind, appendOrder(appendName(key, labels), job)
}

// orderRoom is the size of a claimable job's key without its names: three lengths, and the longest text of appendOrder.
const orderRoom = 3 + prioritySize + 3*sequenceSize

// appendOrder appends the claim order of a job: higher ranks first, and within a rank earlier postings first. Without
// ageing, the rank is the priority. Sequences are never 0. Jobs at the front have a zero instead of their sequence, and
// then the inverted index of the move, so the latest one comes first.
func appendOrder(key []byte, job *jobFacts) []byte {
	key = appendPriority(key, job.rank())
	if job.Front != 0 {
		key = append(append(key, sequenceKey(0)...), sequenceKey(^job.Front)...)
	}
	return binary.BigEndian.AppendUint64(key, job.Sequence)
}

// appendPriority appends a priority so that higher ones sort first. Flipping the sign bit makes
// signed numbers sort like unsigned ones, and the complement inverts their order.
func appendPriority(key []byte, priority jobs.Priority) []byte {
	return binary.BigEndian.AppendUint32(key, ^(uint32(priority) ^ 1<<31))
}

// rank is the constant order of a board's claimable jobs: see ageing.go. It saturates at the smallest and
// the largest priority.
func (j *jobFacts) rank() jobs.Priority {
	rank := int64(j.Priority)
	if j.lag != nil {
		rank -= *j.lag
	}
	return jobs.Priority(min(max(rank, math.MinInt32), math.MaxInt32))
}

// counts returns the effective priority of a job, given its order in the queue and the steps of its
// board until now.
func counts(order []byte, raised int64) int64 {
	return int64(int32(^binary.BigEndian.Uint32(order)^1<<31)) + raised
}
