package fsm

import (
	"bytes"
	"cmp"
	"container/heap"
	"encoding/hex"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
)

// jobIndexFor chooses the index for a query. Without a suitable index, it returns the table of jobs.
func jobIndexFor(q *jobs.Query) (where table, prefix []byte) {
	name := func(indexKey byte, name string) (table, []byte) {
		return tableJobIndex, errorIndexKey(indexKey, name[:min(len(name), maxKeyName)])
	}
	switch {
	case q.Key != "":
		return name(byKey, q.Key)
	case q.ErrorType != "":
		return name(byType, q.ErrorType)
	case len(q.Tags) > 0:
		return name(byTag, q.Tags[0])
	case len(q.States) == 1 && q.States[0] == jobs.StateTrashed:
		return name(byTrashed, "")
	}
	return tableJob, nil
}

// scansJobs reports whether a query reads jobs that it does not select.
func scansJobs(q *jobs.Query, where table) bool {
	filters := len(q.Tags)
	for _, given := range []bool{
		q.Board != "", len(q.States) > 0, q.Kind != "", q.Key != "", q.Name != "", len(q.Outcomes) > 0, q.ErrorType != "",
		!q.PostedFrom.IsZero() || !q.PostedTo.IsZero(), !q.FinishedFrom.IsZero() || !q.FinishedTo.IsZero(),
	} {
		if given {
			filters++
		}
	}
	return filters > 1 || (filters > 0 && where == tableJob)
}

// jobs reads a page of jobs by an index, in the order of the query.
func (v *view) jobs(query jobs.Query, limit int) (jobs.Page[jobs.Job], error) {
	if len(query.Outcomes) > 0 && len(query.States) == 0 {
		query.States = []jobs.State{jobs.StateCompleted} // other states have no outcome
	}
	walk := v.walkPosted
	if query.Order == jobs.OrderClaim {
		query.Board, query.States = cmp.Or(query.Board, jobs.DefaultBoard), []jobs.State{jobs.StateClaimable}
		walk = v.walkClaimable
	}
	rows, scans, err := walk(&query)
	page := jobs.Page[jobs.Job]{Scans: scans}
	if err != nil {
		return page, err
	}
	wanted := stateFilter(query.States)
	examined, size := 0, 0
	var last place
	for at, value := range rows {
		if len(page.Items) >= limit || examined >= maxExamined || size >= maxPageBytes {
			page.Next = last.text()
			return page, nil
		}
		examined++
		last = at
		job, own := v.listed(&query, at.sequence, value, wanted)
		if own > 0 {
			size += own
			page.Items = append(page.Items, job)
		}
	}
	return page, nil
}

// place is the position of a list: the sequence of a job, or a place in claim order.
type place struct {
	sequence uint64
	order    []byte // what appendOrder writes; nil in other orders
}

// claimPlace is the prefix of a text for a place in claim order. The text of a sequence never has it.
const claimPlace = "claim-"

func (p *place) text() string {
	if p.order == nil {
		return strconv.FormatUint(p.sequence, 10)
	}
	return claimPlace + hex.EncodeToString(p.order)
}

// walkPosted yields the jobs of the query's index in posting order, or the newest first.
func (v *view) walkPosted(query *jobs.Query) (rows iter.Seq2[place, []byte], scans bool, err error) {
	where, prefix := jobIndexFor(query)
	newest, last := query.Order == jobs.OrderNewest, uint64(0)
	if newest {
		last = math.MaxUint64
	}
	if query.After != "" {
		if last, err = strconv.ParseUint(query.After, 10, 64); err != nil || last == math.MaxUint64 {
			return nil, false, badCursor("query")
		}
		if !newest {
			last++
		}
	}
	return func(yield func(place, []byte) bool) {
		cursor := v.cursor(where)
		begin, step := cursor.Seek, cursor.Next
		if newest {
			begin, step = cursor.Before, cursor.Prev
		}
		key, value := begin(append(bytes.Clone(prefix), sequenceKey(last)...))
		for ; bytes.HasPrefix(key, prefix) && len(key) == len(prefix)+sequenceSize; key, value = step() {
			if where != tableJob {
				value = v.get(tableJob, key[len(prefix):])
			}
			if !yield(place{sequence: sequenceAtEnd(key)}, value) {
				return
			}
		}
	}, scansJobs(query, where), nil
}

// walkClaimable yields the claimable jobs of a board in claim order. It merges the queues like firstClaimable. The cost
// depends on the number of label sets and of yielded jobs. Within one board, ageing does not change the order.
func (v *view) walkClaimable(query *jobs.Query) (rows iter.Seq2[place, []byte], scans bool, err error) {
	text, found := strings.CutPrefix(query.After, claimPlace)
	after, err := hex.DecodeString(text)
	if err != nil || found != (query.After != "") {
		return nil, false, badCursor("query")
	}
	plain, labelled, prefix := tableAnyKind, tableLabelledAnyKind, boardKey(query.Board[:min(len(query.Board), maxKeyName)])
	if query.Kind != "" {
		plain, labelled = tableClaimable, tableLabelled
		prefix = appendName(prefix, query.Kind[:min(len(query.Kind), maxKeyName)])
	}
	others := *query
	others.Board, others.Kind, others.States = "", "", nil
	return func(yield func(place, []byte) bool) {
		var heads queueHeads
		add := func(where table, queue []byte) {
			begin := append(bytes.Clone(queue), after...)
			cursor := v.cursor(where)
			key, _ := cursor.Seek(begin)
			if len(after) > 0 && bytes.Equal(key, begin) {
				key, _ = cursor.Next()
			}
			if bytes.HasPrefix(key, queue) {
				heads = append(heads, &queueHead{queueStart: queueStart{table: where, prefix: queue}, order: key[len(queue):], cursor: cursor})
			}
		}
		add(plain, prefix)
		for _, queue := range v.leap(labelled, prefix, 1) {
			add(labelled, queue)
		}
		heap.Init(&heads)
		for len(heads) > 0 {
			at := place{sequenceAtEnd(heads[0].order), heads[0].order}
			if !yield(at, v.get(tableJob, sequenceKey(at.sequence))) {
				return
			}
			if heads[0].advance(v) {
				heap.Fix(&heads, 0)
			} else {
				heap.Pop(&heads)
			}
		}
	}, scansJobs(&others, tableJob), nil
}

// listed reads a job for a list, with its stored size; size 0 if the query does not select the job.
func (v *view) listed(query *jobs.Query, sequence uint64, value []byte, wanted [stateCount]bool) (jobs.Job, int) {
	if !wanted[storedState(sequence, value)] {
		return jobs.Job{}, 0
	}
	j := decodeJob(value)
	if !v.selects(query, &j.Job) {
		return jobs.Job{}, 0
	}
	job := v.withEvidence(j.Job)
	return job, len(value) + len(v.get(tableEvidence, sequenceKey(sequence)))
}

// selects reports whether a query selects a job, whose state has been checked.
func (v *view) selects(query *jobs.Query, j *jobs.Job) bool {
	for _, tag := range query.Tags {
		if !slices.Contains(j.Tags, tag) {
			return false
		}
	}
	return is(query.Board, j.Board) && is(query.Kind, j.Kind) && is(query.Key, j.Key) && strings.Contains(j.Name, query.Name) &&
		(len(query.Outcomes) == 0 || slices.Contains(query.Outcomes, j.Outcome)) &&
		within(j.PostedAt, query.PostedFrom, query.PostedTo) && within(j.FinishedAt, query.FinishedFrom, query.FinishedTo) &&
		(query.ErrorType == "" || v.hasError(j, query.ErrorType))
}

func (v *view) hasError(j *jobs.Job, kind string) bool {
	return len(kind) <= maxKeyName && v.get(tableJobIndex, jobIndexKey(byType, kind, j.Sequence)) != nil
}

// within reports whether at is in the span from from to to, without to. A zero at is in no limited span.
func within(at, from, to time.Time) bool {
	return (from.IsZero() || !at.Before(from)) && (to.IsZero() || !at.IsZero() && at.Before(to))
}

// stateFilter returns, for each state by its number, whether the query selects it.
func stateFilter(states []jobs.State) [stateCount]bool {
	var wanted [stateCount]bool
	for i := range wanted {
		wanted[i] = len(states) == 0
	}
	for _, state := range states {
		if number := stateNumber(state); number >= 0 {
			wanted[number] = true
		}
	}
	return wanted
}
