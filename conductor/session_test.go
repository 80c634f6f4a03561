package conductor_test

import (
	"testing"
	"time"
	"unsafe"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/internal/boottime"
)

// step is one event of an attendance, at a time in thousandths of the TTL.
type step struct {
	at   int
	do   string // "look", "ask" (a look that must send), "ack", "check"
	sent int    // for "ack": time of sending
	want string // expected standing after the step
	next int    // for "look": time of the next look; 0: not checked
}

func TestAttendance(t *testing.T) {
	const ttl = 4 * time.Second
	rows := []struct {
		name  string
		steps []step
	}{
		{"acknowledged in time", []step{
			{at: 0, do: "look", want: "sound", next: 200},
			{at: 200, do: "ask", want: "sound", next: 400},
			{at: 210, do: "ack", sent: 200, want: "sound"},
			{at: 399, do: "look", want: "sound", next: 400},
			{at: 400, do: "ask", want: "sound", next: 600},
		}},
		{"counts from the sending, not from the answer", []step{
			{at: 200, do: "ask", want: "sound"},
			{at: 390, do: "ack", sent: 200, want: "sound"},
			{at: 400, do: "ask", want: "sound"}, {at: 600, do: "ask", want: "sound"},
			{at: 799, do: "check", want: "sound"},
			{at: 800, do: "ask", want: "doubtful"},
		}},
		{"silence: the gate closes, the steps stop, all is lost", []step{
			{at: 200, do: "ask", want: "sound", next: 400},
			{at: 400, do: "ask", want: "sound", next: 500},
			{at: 500, do: "ask", want: "sound", next: 600},
			{at: 599, do: "check", want: "sound"},
			{at: 600, do: "ask", want: "doubtful", next: 700},
			{at: 700, do: "ask", want: "doubtful", next: 800},
			{at: 799, do: "check", want: "doubtful"},
			{at: 800, do: "ask", want: "failing", next: 900},
			{at: 900, do: "ask", want: "failing", next: 1000},
			{at: 999, do: "check", want: "failing"},
			{at: 1000, do: "look", want: "lost"},
		}},
		{"thresholds are watched between keep-alives", []step{
			{at: 200, do: "ask", want: "sound"},
			{at: 210, do: "ack", sent: 200, want: "sound"},
			{at: 390, do: "look", want: "sound", next: 400},
			{at: 410, do: "ask", want: "sound", next: 610},
			{at: 610, do: "ask", want: "sound", next: 710},
			{at: 710, do: "ask", want: "sound", next: 800},
			{at: 800, do: "look", want: "doubtful", next: 810},
		}},
		{"an answer at the last moment saves the session", []step{
			{at: 200, do: "ask", want: "sound"}, {at: 400, do: "ask", want: "sound"}, {at: 600, do: "ask", want: "doubtful"},
			{at: 800, do: "ask", want: "failing"},
			{at: 990, do: "ack", sent: 800, want: "sound"},
		}},
		{"lost is for ever", []step{
			{at: 200, do: "ask", want: "sound"}, {at: 400, do: "ask", want: "sound"}, {at: 600, do: "ask", want: "doubtful"},
			{at: 800, do: "ask", want: "failing"},
			{at: 1001, do: "ack", sent: 800, want: "lost"},
			{at: 1010, do: "look", want: "lost"},
		}},
		{"an old answer takes nothing back", []step{
			{at: 200, do: "ask", want: "sound"}, {at: 400, do: "ask", want: "sound"},
			{at: 450, do: "ack", sent: 400, want: "sound"},
			{at: 460, do: "ack", sent: 200, want: "sound"},
			{at: 600, do: "ask", want: "sound"}, {at: 800, do: "ask", want: "sound"},
			{at: 990, do: "check", want: "sound"},
			{at: 1000, do: "check", want: "doubtful"},
		}},
		{"after a pause only a new keep-alive ends the doubt", []step{
			{at: 200, do: "ask", want: "sound"}, // the process is suspended until the next row
			{at: 590, do: "check", want: "sound"},
			{at: 605, do: "check", want: "doubtful"},
			{at: 610, do: "ack", sent: 200, want: "doubtful"},
			{at: 620, do: "ask", want: "doubtful"},
			{at: 630, do: "ack", sent: 200, want: "doubtful"},
			{at: 640, do: "ack", sent: 620, want: "sound"},
		}},
		{"a pause is seen by who asks before the watch wakes", []step{
			{at: 200, do: "ask", want: "sound", next: 400},
			{at: 210, do: "ack", sent: 200, want: "sound"},
			{at: 601, do: "check", want: "doubtful"},
		}},
		{"a pause longer than the time to live loses everything at once", []step{
			{at: 200, do: "ask", want: "sound"},
			{at: 5000, do: "check", want: "lost"},
			{at: 5000, do: "look", want: "lost"},
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			start := time.Now()
			moment := func(thousandths int) time.Time { return start.Add(ttl * time.Duration(thousandths) / 1000) }
			attendance := conductor.NewAttendance(ttl, start)
			for _, s := range row.steps {
				now := moment(s.at)
				switch s.do {
				case "look", "ask":
					_, ask, next := attendance.Look(now)
					if ask != (s.do == "ask") {
						t.Errorf("at %d: sends a keep-alive: %v", s.at, ask)
					}
					if s.next != 0 && !next.Equal(moment(s.next)) {
						t.Errorf("at %d: looks again at %s, want %s", s.at, next.Sub(start), moment(s.next).Sub(start))
					}
				case "ack":
					attendance.Acknowledged(moment(s.sent), now)
				}
				if got := attendance.Standing(now); got != s.want {
					t.Errorf("at %d, after %s: %s, want %s", s.at, s.do, got, s.want)
				}
			}
		})
	}
}

// stepped returns the same moment with the wall clock set forward: the monotonic reading does not
// change. See time.Time: a flag, 33 bits of seconds, 30 of nanoseconds.
func stepped(t time.Time, seconds uint64) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += seconds << 30
	return t
}

// A step of the wall clock by a time service costs no claim. A suspension of the same length does,
// because both clocks count it.
func TestAWallClockStepCostsNoClaim(t *testing.T) {
	const ttl = 4 * time.Second
	sent := boottime.Now()
	attendance := conductor.NewAttendance(ttl, sent)
	now := stepped(sent.Add(ttl/40), uint64(ttl.Seconds()))
	if passed := now.Sub(sent); passed != ttl/40 {
		t.Fatalf("the monotonic clock has moved by %v", passed)
	}
	if got := attendance.Standing(now); got != "sound" {
		t.Errorf("0.1 s after a keep-alive, and a step of the wall clock by 4 s: %s", got)
	}
	if got := attendance.Standing(sent.Add(ttl)); got != "lost" {
		t.Errorf("after a suspension of 4 s: %s", got)
	}
}
