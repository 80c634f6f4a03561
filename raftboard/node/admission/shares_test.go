package admission_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/conductord/conductord/raftboard/node/admission"
)

// A budget leaves each newcomer as much as the largest holder has. Released amounts are available
// to others.
func TestBudgetIsShared(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name        string
		total, each int64
		takes       string // holder and number; a leading "-": released; a trailing "!": refused
	}{
		{"one holder has half", 8, 0, "a1 a1 a1 a1 a1! b1 b1 b1! c1 c1!"},
		{"given back", 8, 0, "a2 a2 a1! -a2 b2 a1 a1!"},
		{"a large first piece", 8, 0, "a7 a1! b1 b1! -a7 b1"},
		{"beyond the total", 8, 0, "a9! a8 b1!"},
		{"a fixed part", 8, 2, "a2 a1! b2 c2 d2 e1! -a2 e1"},
		{"nodes and this process", 4, 0, "a2 _1 _1 _1!"},
	} {
		b := admission.NewBudget(row.total, row.each)
		for i, step := range strings.Fields(row.takes) {
			step, refused := strings.CutSuffix(step, "!")
			step, given := strings.CutPrefix(step, "-")
			n := int64(step[1] - '0')
			holder := strings.TrimPrefix(step[:1], "_")
			if given {
				b.Give(holder, n)
			} else if b.Take(holder, n) == refused {
				t.Errorf("%s: step %d, %s: refused is not %v", row.name, i, step, refused)
			}
		}
	}
}

// A meter gives active holders equal shares, reserves one for a newcomer, and collects debts.
func TestMeterIsShared(t *testing.T) {
	t.Parallel()
	m, now := admission.NewMeter(40), time.Unix(1, 0) // per span
	use := func(holder string, spans int) (units int) {
		for range spans {
			now = now.Add(admission.MeterSpan)
			for m.Take(holder, 1, now) == 0 {
				units++
			}
		}
		return units
	}
	if alone := use("a", 10); alone != 200 {
		t.Errorf("alone, a holder uses %d of 400 units", alone)
	}
	used := map[string]int{}
	for range 30 {
		now = now.Add(admission.MeterSpan)
		for _, holder := range []string{"a", "b", "c"} {
			for m.Take(holder, 1, now) == 0 {
				used[holder]++
			}
		}
	}
	if used["a"] < 280 || used["a"] > 320 || used["b"] < 280 || used["c"] < 280 {
		t.Errorf("three holders use %v of 1,200 units", used)
	}
	now = now.Add(100 * admission.MeterSpan)
	m.Take("a", 95, now)
	spans := 0
	for m.Take("a", 1, now) > 0 {
		now = now.Add(admission.MeterSpan)
		spans++
	}
	if spans != 4 {
		t.Errorf("a debt of 95 units is paid in %d spans of 20", spans)
	}
}

// TestMeterWithManyHolders: 100 holders together use no more than the total, even if a part of a
// span is less than one unit.
func TestMeterWithManyHolders(t *testing.T) {
	t.Parallel()
	const total, spans = 5, 200
	m, now, units := admission.NewMeter(total), time.Unix(1, 0), 0
	var wait time.Duration
	for range spans {
		now = now.Add(admission.MeterSpan)
		for holder := range 100 {
			for wait = m.Take(fmt.Sprint(holder), 1, now); wait == 0; wait = m.Take(fmt.Sprint(holder), 1, now) {
				units++
			}
		}
	}
	if first := 100; units > total*spans+first || units < total*spans/2 {
		t.Errorf("100 holders use %d of %d units", units, total*spans)
	}
	if wait < 2*admission.MeterSpan {
		t.Errorf("a holder with a fraction of a unit per span waits %s, and looks again in each span", wait)
	}
}

// Frames of HTTP/2 are counted however the reads divide them. HTTP/1.1 has none.
func TestFramesAreCounted(t *testing.T) {
	t.Parallel()
	ping := frame(6, 0, 0, "12345678")
	for _, row := range []struct {
		name, sent string
		want       int64
	}{
		{"HTTP 1.1", "GET / HTTP/1.1\r\nHost: x\r\n\r\n" + ping, 0},
		{"the preface alone", admission.Preface, 0},
		{"settings and pings", admission.Preface + frame(4, 0, 0, "") + strings.Repeat(ping, 9), 10},
		{"empty data", admission.Preface + strings.Repeat(frame(0, 0, 1, ""), 100), 100},
		{"a large frame", admission.Preface + frame(0, 0, 1, strings.Repeat("x", 70_000)) + ping, 2},
		{"large headers", admission.Preface + frame(1, 4, 1, strings.Repeat("x", 2_560)) + frame(9, 4, 1, strings.Repeat("x", 256)), 13},
		{"a frame that has begun", admission.Preface + ping + ping[:9], 2},
		{"a head that has begun", admission.Preface + ping + ping[:8], 1},
	} {
		for size := 1; size < len(row.sent)+2; size = size*3 + 1 {
			if got := admission.CountFrames([]byte(row.sent), size); got != row.want {
				t.Errorf("%s, in reads of %d bytes: %d frames, and not %d", row.name, size, got, row.want)
			}
		}
	}
}

// A connection beyond the limit costs the same for any number of connections.
func TestConnectionsBeyondTheBoundAreCheap(t *testing.T) {
	t.Parallel()
	cost := func(limit int) time.Duration {
		least := time.Hour
		for range 5 {
			least = min(least, admission.FloodConnections(limit, 2_000))
		}
		return least
	}
	if few, many := cost(16), cost(16_384); many > 10*few {
		t.Errorf("2,000 connections take %s over a bound of 16, and %s over one of 16,384", few, many)
	}
}

// frame is a frame of HTTP/2.
func frame(kind, flags byte, stream uint32, payload string) string {
	head := append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind)), flags)
	return string(binary.BigEndian.AppendUint32(head, stream)) + payload
}

// A body takes memory only when the budget has room for the whole body, also if its length was
// announced.
func TestBodiesWaitWithoutMemory(t *testing.T) {
	t.Parallel()
	for _, length := range []int64{100, 1 << 20, -1} {
		synctest.Test(t, func(t *testing.T) {
			request := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(make([]byte, 1<<20)))
			request.ContentLength = length
			taken, err := admission.BodyWithoutRoom(request)
			if taken != 0 || connect.CodeOf(err) != connect.CodeUnavailable {
				t.Errorf("a body of %d bytes took %d bytes of memory before the budget had room, and then: %v", length, taken, err)
			}
		})
	}
}
