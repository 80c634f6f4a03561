package admission_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/conductord/conductord/raftboard/node/admission"
)

// A host is known for a time after a call. At the maximum number of hosts, the host that has been
// silent longest is forgotten.
func TestKnownHosts(t *testing.T) {
	t.Parallel()
	var known admission.KnownHosts
	start := time.Unix(1_000, 0)
	host := func(i int) string { return fmt.Sprint("host", i) }
	for i := range admission.MaxKnownHosts {
		known.Note(host(i), start.Add(time.Duration(i)*time.Microsecond))
	}
	known.Note(host(0), start.Add(time.Second))
	for _, row := range []struct {
		name  string
		more  int
		after time.Duration
		want  map[int]bool
	}{
		{"at the limit", 0, time.Second, map[int]bool{0: true, 1: true, admission.MaxKnownHosts - 1: true, admission.MaxKnownHosts: false}},
		{"one more", 1, time.Second, map[int]bool{0: true, 1: false, 2: true, admission.MaxKnownHosts: true}},
		{"until its last moment", 0, admission.KnownFor, map[int]bool{2: true, 0: true, admission.MaxKnownHosts: true}},
		{"a moment later", 0, admission.KnownFor + time.Millisecond, map[int]bool{2: false, 0: true, admission.MaxKnownHosts: true}},
		{"later", 0, admission.KnownFor + time.Minute, map[int]bool{0: false, admission.MaxKnownHosts: false}},
	} {
		for range row.more {
			known.Note(host(admission.MaxKnownHosts), start.Add(row.after))
		}
		for i, want := range row.want {
			if got := known.Has(host(i), start.Add(row.after)); got != want {
				t.Errorf("%s: %s is known: %t, want %t", row.name, host(i), got, want)
			}
		}
	}
}

// The connections of a hundred unknown hosts do not reduce the connections of a host with an
// authenticated caller.
func TestStrangersKeepNoKnownHostOut(t *testing.T) {
	t.Parallel()
	alone, beside, start := admission.NewEntries(), admission.NewEntries(), time.Now()
	now := start
	shakes := func(entries admission.Entries, host string) (n int) { // in a second
		for now = start; now.Before(start.Add(time.Second)); now = now.Add(admission.MeterSpan) {
			for entries.Shake(host, now) {
				n++
			}
		}
		return n
	}
	count := func(entries admission.Entries) int {
		entries.Authenticated("known", start)
		return shakes(entries, "known")
	}
	if known, strangers := count(admission.NewEntries()), shakes(admission.NewEntries(), "stranger"); strangers > known/2 {
		t.Errorf("a known host may begin %d handshakes, and strangers %d", known, strangers)
	}
	for i := range 100 {
		for beside.Shake(fmt.Sprint("stranger", i), now) {
			continue
		}
	}
	if a, b := count(alone), count(beside); b < a {
		t.Errorf("a known host may begin %d handshakes, and beside strangers %d", a, b)
	}
}

// A connection does not count as a handshake before its client has sent something.
func TestSilentConnectionsTakeNoTurn(t *testing.T) {
	t.Parallel()
	if n := admission.HandshakesOfSilent(); n != 0 {
		t.Errorf("a silent connection counts as %d handshakes", n)
	}
}
