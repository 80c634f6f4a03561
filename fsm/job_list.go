package fsm

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
)

// jobIndexFor finds the index that leads to the fewest jobs. Where there is none,
// it is the jobs themselves.
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

// scansJobs reports whether a listing has to leave out jobs to which its index
// leads.
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

// jobs reads a page of jobs by an index, in the order of their posting.
func (v *view) jobs(query jobs.Query, limit int) (jobs.Page[jobs.Job], error) {
	where, prefix := jobIndexFor(&query)
	page := jobs.Page[jobs.Job]{Scans: scansJobs(&query, where)}
	if len(query.Outcomes) > 0 && len(query.States) == 0 {
		query.States = []jobs.State{jobs.StateCompleted} // no other has an outcome
	}
	wanted := stateFilter(query.States)
	last := uint64(0)
	if query.After != "" {
		var err error
		if last, err = strconv.ParseUint(query.After, 10, 64); err != nil || last == math.MaxUint64 {
			return page, badCursor("query")
		}
	}
	examined, size := 0, 0
	cursor := v.cursor(where)
	key, value := cursor.Seek(append(bytes.Clone(prefix), sequenceKey(last+1)...))
	for ; bytes.HasPrefix(key, prefix) && len(key) == len(prefix)+sequenceSize; key, value = cursor.Next() {
		if len(page.Items) >= limit || examined >= maxExamined || size >= maxPageBytes {
			page.Next = strconv.FormatUint(last, 10)
			return page, nil
		}
		examined++
		last = sequenceAtEnd(key)
		if where != tableJob {
			value = v.get(tableJob, key[len(prefix):])
		}
		job, own := v.listed(&query, last, value, wanted)
		if own > 0 {
			size += own
			page.Items = append(page.Items, job)
		}
	}
	return page, nil
}

// listed reads a job for a listing, and how many bytes it takes as stored; 0 if
// the listing does not ask for it.
func (v *view) listed(query *jobs.Query, sequence uint64, value []byte, wanted [stateCount]bool) (jobs.Job, int) {
	if len(value) < jobPrefixSize || int(value[1]) >= len(wanted) {
		panic(corrupt("job %d is stored without its state", sequence))
	}
	if !wanted[value[1]] {
		return jobs.Job{}, 0
	}
	j := decodeJob(value)
	if !v.selects(query, &j.Job) {
		return jobs.Job{}, 0
	}
	job := v.withEvidence(j.Job)
	return job, len(value) + len(v.get(tableEvidence, sequenceKey(sequence)))
}

// selects reports whether a listing asks for a job, whose state suits already.
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

// within reports whether a moment lies in a time. No moment lies in any.
func within(at, from, to time.Time) bool {
	return (from.IsZero() || !at.Before(from)) && (to.IsZero() || !at.IsZero() && at.Before(to))
}

// stateFilter tells for each state, by its number, whether it is asked for.
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
