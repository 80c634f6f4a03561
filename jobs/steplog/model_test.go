package steplog_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steplog"
	"github.com/conductord/conductord/logbook"
)

// A model of the buffer: one list of all appended lines, and the losses. cost is the size of a line
// in addition to its text.
const cost = 160

type kept struct {
	steplog.Line
	attempt string // the attempt and its job, as text
	dropped bool
}

type model struct {
	lines   []*kept
	last    uint64
	written map[string]int64
	runs    map[jobs.JobID]int
	ended   []jobs.JobID // in the order of their ends
	trims   int          // number of dropped jobs
}

func attemptOf(job jobs.JobID, l *steplog.Line) string {
	return fmt.Sprint(job, " ", l.Step, " ", l.Action, " ", l.Attempt, ";")
}

// of returns the stored lines of an attempt or a job, or all lines for an empty name, with their
// size.
func (m *model) of(name string) (lines []*kept, size int) {
	for _, l := range m.lines {
		if !l.dropped && strings.HasPrefix(l.attempt, name) {
			lines, size = append(lines, l), size+len(l.Text)+cost
		}
	}
	return lines, size
}

func (m *model) append(job jobs.JobID, line steplog.Line) {
	if m.runs[job] == 0 {
		return
	}
	attempt := attemptOf(job, &line)
	m.lines = slices.DeleteFunc(m.lines, func(l *kept) bool { return l.dropped })
	m.last++
	line.Number, line.Offset = m.last, m.written[attempt]
	m.written[attempt] += int64(len(line.Text)) + 1
	m.lines = append(m.lines, &kept{Line: line, attempt: attempt})
	for lines, size := m.of(attempt); size > steplog.MaxAttempt; lines = lines[1:] {
		lines[0].dropped = true
		size -= len(lines[0].Text) + cost
	}
	for _, size := m.of(""); size > steplog.MaxBuffer && len(m.ended) > 0; _, size = m.of("") {
		lines, _ := m.of(m.ended[0].String())
		for _, l := range lines {
			l.dropped = true
		}
		maps.DeleteFunc(m.written, func(attempt string, _ int64) bool { return strings.HasPrefix(attempt, m.ended[0].String()) })
		m.trims++
		m.ended = m.ended[1:]
	}
}

const jobsInAll, large, flood = 4, 60 << 10, 24

// TestBufferAgreesWithItsModel: after any sequence of appends, starts, ends and reads, the buffer
// has the same lines as the model, and pages have each line once.
func TestBufferAgreesWithItsModel(t *testing.T) {
	longtest.Checks(t, 30)
	trims := 0
	rapid.Check(t, func(t *rapid.T) {
		b, m := steplog.New("n"), &model{written: map[string]int64{}, runs: map[jobs.JobID]int{}}
		var ids []jobs.JobID
		ends := map[jobs.JobID][]func(){}
		for range jobsInAll {
			ids = append(ids, jobs.NewJobID())
		}
		page := map[jobs.JobID]string{} // position of each job's reader
		seen := map[jobs.JobID]uint64{}
		both := func(job jobs.JobID, line steplog.Line) {
			_, size := m.of("")
			for _, id := range m.ended {
				_, ended := m.of(id.String())
				size -= ended
			}
			// If no job can be dropped, the buffer drops lines of the largest attempt.
			if size+len(line.Text)+cost <= steplog.MaxBuffer {
				b.Append(job, line, len(line.Text))
				m.append(job, line)
			}
		}
		for range 100 {
			job := rapid.SampledFrom(ids).Draw(t, "job")
			switch rapid.IntRange(0, 9).Draw(t, "verb") {
			case 0:
				ends[job] = append(ends[job], b.Begin(job))
				m.runs[job]++
				m.ended = slices.DeleteFunc(m.ended, func(id jobs.JobID) bool { return id == job })
			case 1:
				if m.runs[job] == 0 {
					continue
				}
				ends[job][0]()
				ends[job] = ends[job][1:]
				m.runs[job]--
				if lines, _ := m.of(job.String()); m.runs[job] == 0 && len(lines) > 0 {
					m.ended = append(m.ended, job)
				}
			case 2:
				read, changed, err := b.Read(steplog.Query{Job: job, After: page[job]})
				if err != nil || read.Running != (m.runs[job] > 0) || (changed != nil) != read.Running {
					t.Fatalf("running=%v with a channel %v, %v; %d runs go on", read.Running, changed != nil, err, m.runs[job])
				}
				all, _ := m.of(job.String())
				rest := slices.DeleteFunc(all, func(l *kept) bool { return l.Number <= seen[job] })
				if len(read.Lines) > len(rest) || len(read.Lines) == 0 && len(rest) > 0 {
					t.Fatalf("a page of %d lines, and %d follow", len(read.Lines), len(rest))
				}
				for i := range read.Lines {
					if read.Lines[i] != rest[i].Line {
						t.Fatalf("a page has\n%+.100v, want\n%+.100v", read.Lines[i], rest[i].Line)
					}
					seen[job] = read.Lines[i].Number
				}
				page[job] = read.Next
			case 3: // many attempts write up to their limit, while others can be dropped
				for attempt := range flood * 5 {
					line := steplog.Line{Step: "flood", Action: logbook.ActionExecute, Attempt: attempt % flood, Text: strings.Repeat("x", large)}
					both(job, line)
				}
			default:
				line := steplog.Line{Step: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "step"), Action: logbook.ActionExecute, Attempt: rapid.IntRange(1, 2).Draw(t, "attempt")}
				line.Text = strings.Repeat("x", rapid.SampledFrom([]int{0, 1, 1000, large}).Draw(t, "size"))
				both(job, line)
			}
		}
		trims += m.trims
		for _, job := range ids {
			got, _ := allOf(t, b, job)
			want, size := m.of(job.String())
			if !slices.EqualFunc(got, want, func(g steplog.Line, w *kept) bool { return g == w.Line }) {
				t.Fatalf("%d lines are kept, and %d should be", len(got), len(want))
			}
			if !slices.IsSortedFunc(got, func(a, b steplog.Line) int { return cmp.Compare(a.Number, b.Number) }) || size > steplog.MaxBuffer {
				t.Fatalf("not in order, or %d bytes", size)
			}
		}
	})
	if trims == 0 && !t.Failed() {
		t.Error("no job has been dropped above the bound of all")
	}
}

func allOf(t *rapid.T, b *steplog.Buffer, job jobs.JobID) (lines []steplog.Line, next string) {
	for {
		page, _, err := b.Read(steplog.Query{Job: job, After: next})
		if err != nil {
			t.Fatal(err)
		}
		if next = page.Next; len(page.Lines) == 0 {
			return lines, next
		}
		lines = append(lines, page.Lines...)
	}
}
