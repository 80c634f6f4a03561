package steplog_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steplog"
	"github.com/conductord/conductord/logbook"
)

// line is a line of the first attempt at a step.
func line(step, text string) steplog.Line {
	return steplog.Line{Step: step, Action: logbook.ActionExecute, Attempt: 1, Text: text}
}

// appendLines appends lines of a size to a job until a total number of bytes is reached.
func appendLines(b *steplog.Buffer, job jobs.JobID, step string, bytes int) {
	text := strings.Repeat("x", 1023)
	for range bytes >> 10 {
		b.Append(job, line(step, text), len(text))
	}
}

// all reads all pages.
func all(t *testing.T, b *steplog.Buffer, query steplog.Query) (lines []steplog.Line, next string) {
	t.Helper()
	for {
		page, _, err := b.Read(query)
		if err != nil {
			t.Fatal(err)
		}
		if query.After = page.Next; len(page.Lines) == 0 {
			return lines, page.Next
		}
		if size := sizeOf(page.Lines); size > 256<<10 {
			t.Errorf("a page has %d bytes", size)
		}
		lines = append(lines, page.Lines...)
	}
}

func sizeOf(lines []steplog.Line) (size int) {
	for i := range lines {
		size += len(lines[i].Text)
	}
	return size
}

func TestLines(t *testing.T) {
	b, job, other := steplog.New("n.1"), jobs.NewJobID(), jobs.NewJobID()
	b.Append(job, line("a", "before its run"), 0)
	end := b.Begin(job)
	defer b.Begin(other)()
	b.Append(job, line("a", "one"), 3)
	b.Append(job, line("b", "two"), 3)
	b.Append(other, line("a", "of another job"), 1)
	b.Append(job, line("a", "three"), 5)
	lines, next := all(t, b, steplog.Query{Job: job})
	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprintf("%s %s %d", l.Step, l.Text, l.Offset))
	}
	if want := "a one 0, b two 0, a three 4"; strings.Join(got, ", ") != want {
		t.Errorf("%q, want %s", got, want)
	}
	if lines, _ := all(t, b, steplog.Query{Job: job, Step: "b"}); len(lines) != 1 || lines[0].Text != "two" {
		t.Errorf("of one step: %+v", lines)
	}
	if got := steplog.BufferOf(next); !strings.HasSuffix(got, ".n.1") {
		t.Errorf("the lines are from %q", got)
	}
	_, changed, err := b.Read(steplog.Query{Job: job, After: next})
	if err != nil || changed == nil {
		t.Fatal(changed, err)
	}
	end()
	<-changed
	b.Append(job, line("a", "after its run"), 0)
	page, changed, err := b.Read(steplog.Query{Job: job})
	if err != nil || changed != nil || page.Running || len(page.Lines) != 3 {
		t.Errorf("after the run: %+v, %v", page, err)
	}
	again := steplog.New("n.1") // after a restart
	defer again.Begin(job)()
	again.Append(job, line("a", "anew"), 4)
	if page, _, err := again.Read(steplog.Query{Job: job, After: next}); err != nil || len(page.Lines) != 1 {
		t.Errorf("with the position of an earlier process: %+v, %v", page, err)
	}
	for _, after := range []string{"x", "1", "-1.a.b", "1.a", strings.Repeat("9", 30) + ".a.b"} {
		if _, _, err := b.Read(steplog.Query{Job: job, After: after}); !errors.Is(err, logbook.ErrInvalid) {
			t.Errorf("after %q: %v", after, err)
		}
	}
}

// TestBounds checks that the oldest lines of an attempt are dropped first, and that readers see the
// number. Above the total limit, ended jobs lose lines before running jobs.
func TestBounds(t *testing.T) {
	b, job := steplog.New("n1"), jobs.NewJobID()
	defer b.Begin(job)()
	appendLines(b, job, "small", 8<<10)
	appendLines(b, job, "large", 10*steplog.MaxAttempt)
	large, _ := all(t, b, steplog.Query{Job: job, Step: "large"})
	if size := sizeOf(large); size > steplog.MaxAttempt || size < steplog.MaxAttempt*3/4 || large[0].Offset != int64(10*steplog.MaxAttempt-len(large)<<10) {
		t.Errorf("%d bytes in %d lines are kept of a large attempt, from %d", size, len(large), large[0].Offset)
	}
	if small, _ := all(t, b, steplog.Query{Job: job, Step: "small"}); len(small) != 8 || small[0].Offset != 0 {
		t.Errorf("%d lines are kept of a small attempt", len(small))
	}
	appendLines(b, job, "medium", steplog.MaxAttempt/2)
	if lines, _ := all(t, b, steplog.Query{Job: job}); sizeOf(lines) <= steplog.MaxAttempt {
		t.Errorf("%d lines of all attempts do not need two pages", len(lines))
	}

	ended := jobs.NewJobID()
	end := b.Begin(ended)
	appendLines(b, ended, "s", steplog.MaxAttempt)
	end()
	var running []jobs.JobID
	for range 2 * steplog.MaxBuffer / steplog.MaxAttempt {
		running = append(running, jobs.NewJobID())
		defer b.Begin(running[len(running)-1])()
		appendLines(b, running[len(running)-1], "s", steplog.MaxAttempt)
	}
	if lines, _ := all(t, b, steplog.Query{Job: ended}); len(lines) > 0 {
		t.Errorf("%d lines are kept of a job that has ended", len(lines))
	}
	total := 0
	for _, id := range append(running, job) {
		lines, _ := all(t, b, steplog.Query{Job: id})
		if len(lines) == 0 {
			t.Error("a job that runs has lost all")
		}
		total += sizeOf(lines)
	}
	if total > steplog.MaxBuffer || total < steplog.MaxBuffer*3/4 {
		t.Errorf("%d bytes are kept in all", total)
	}
}

// TestReadTakesWhatItReturns checks that a page of a full buffer costs about as much as its size.
// Steps that write wait during the read.
func TestReadTakesWhatItReturns(t *testing.T) {
	b, job := steplog.New("n"), jobs.NewJobID()
	defer b.Begin(job)()
	for i := range steplog.MaxBuffer / 161 {
		b.Append(job, line(fmt.Sprint("s", i%64), "x"), 1)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	page, _, err := b.Read(steplog.Query{Job: job})
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; err != nil || len(page.Lines) < 1000 || taken > 1<<20 {
		t.Errorf("a page of %d lines takes %d bytes, %v", len(page.Lines), taken, err)
	}
}

// FuzzCursors: the next cursor of a page continues after its last line, names its node, and is not
// valid for another buffer. An invented cursor is refused, or belongs to another buffer.
func FuzzCursors(f *testing.F) {
	f.Add("n1", uint8(3), uint8(1), "2.x.n1")
	f.Add("n.1", uint8(0), uint8(0), "x")
	f.Add("", uint8(9), uint8(9), "-1.a.b")
	f.Add("ü\x00", uint8(200), uint8(100), "99999999999999999999.a.b")
	f.Add("n", uint8(1), uint8(1), "+1.a.b")
	f.Fuzz(func(t *testing.T, node string, count, read uint8, text string) {
		b, job := steplog.New(node), jobs.NewJobID()
		defer b.Begin(job)()
		next := ""
		for i := range int(count) {
			b.Append(job, line("a", fmt.Sprint(i)), 1)
			if i+1 == int(read) {
				page, _, err := b.Read(steplog.Query{Job: job})
				if err != nil || len(page.Lines) != i+1 {
					t.Fatalf("%d lines after %d, %v", len(page.Lines), i+1, err)
				}
				next = page.Next
			}
		}
		page, _, err := b.Read(steplog.Query{Job: job, After: next})
		want := int(count)
		if next != "" {
			want -= int(read)
		}
		if err != nil || len(page.Lines) != want || !strings.HasSuffix(steplog.BufferOf(page.Next), "."+node) {
			t.Fatalf("%d lines follow %q of node %q, want %d; then %q, %v", len(page.Lines), next, node, want, page.Next, err)
		}
		if rest, _, err := b.Read(steplog.Query{Job: job, After: page.Next}); err != nil || len(rest.Lines) > 0 || rest.Next != page.Next {
			t.Fatalf("%d lines follow the last one, then %q, %v", len(rest.Lines), rest.Next, err)
		}
		switch other, _, err := b.Read(steplog.Query{Job: job, After: text}); {
		case errors.Is(err, logbook.ErrInvalid):
			if len(err.Error()) > 1000 {
				t.Fatalf("%d bytes of refusal", len(err.Error()))
			}
		case err != nil || len(other.Lines) != int(count):
			t.Fatalf("%d lines follow %q, %v", len(other.Lines), text, err)
		case text != "" && strings.Count(text, ".") < 2:
			t.Fatalf("%q passes for a next", text)
		}
	})
}
