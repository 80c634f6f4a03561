package measure_test

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/conductord/conductord/internal/measure"
)

func TestUsage(t *testing.T) {
	before := measure.Usage{CPU: time.Second, Allocations: 10, Allocated: 100, LogWrites: 1, Resident: 7}
	after := measure.Usage{CPU: 3 * time.Second, Allocations: 15, Allocated: 150, LogWrites: 4, Resident: 9}
	spent := after.Since(before)
	if want := (measure.Usage{CPU: 2 * time.Second, Allocations: 5, Allocated: 50, LogWrites: 3, Resident: 9}); spent != want {
		t.Errorf("spent %+v, want %+v", spent, want)
	}
	if got, want := measure.MeanUsage([]measure.Usage{before, after}), (measure.Usage{CPU: 2 * time.Second, Allocations: 12.5, Allocated: 125, LogWrites: 2.5, Resident: 8}); got != want {
		t.Errorf("the mean is %+v, want %+v", got, want)
	}
	if got, want := spent.Per(2), (measure.Usage{CPU: time.Second, Allocations: 2.5, Allocated: 25, LogWrites: 1.5, Resident: 9}); got != want {
		t.Errorf("each has spent %+v, want %+v", got, want)
	}
	if got := measure.MeanUsage(nil); got != (measure.Usage{}) {
		t.Errorf("the mean of none is %+v", got)
	}
}

func TestNodeUsage(t *testing.T) {
	got := measure.NodeUsage(-1, measure.Counters{
		"process_cpu_seconds_total": 1.5, "go_memstats_mallocs_total": 7, "go_memstats_alloc_bytes_total": 70, "conductord_log_write_duration_seconds_count": 3,
	})
	if want := (measure.Usage{CPU: 1500 * time.Millisecond, Allocations: 7, Allocated: 70, LogWrites: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestOwnUsage checks that the usage of this process is measured.
func TestOwnUsage(t *testing.T) {
	before, err := measure.OwnUsage()
	if err != nil {
		t.Fatal(err)
	}
	const objects = 100_000
	kept := make([]*[64]byte, objects)
	for i := range kept {
		kept[i] = new([64]byte)
	}
	after, err := measure.OwnUsage()
	if err != nil {
		t.Fatal(err)
	}
	runtime.KeepAlive(kept)
	if spent := after.Since(before); spent.Allocations < objects || spent.Allocated < 64*objects || after.CPU <= 0 {
		t.Errorf("spent %+v", spent)
	}
}

const processStatus = `Name:	conductord
VmHWM:	   90000 kB
VmRSS:	   80000 kB
RssAnon:	   50000 kB
RssFile:	   30000 kB
RssShmem:	       0 kB
Threads:	12
voluntary_ctxt_switches:	150
`

func TestMemory(t *testing.T) {
	if got, want := measure.ParseMemory([]byte(processStatus)), (measure.Memory{Resident: 80_000 << 10, Anonymous: 50_000 << 10, Mapped: 30_000 << 10}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := measure.ParseMemory([]byte("VmRSS: many kB")); got != (measure.Memory{}) {
		t.Errorf("of nonsense: %+v", got)
	}
	if own := measure.ReadMemory(os.Getpid()); runtime.GOOS == "linux" && (own.Resident <= 0 || own.Anonymous <= 0) {
		t.Errorf("this process has %+v", own)
	}
	if none := measure.ReadMemory(-1); none != (measure.Memory{}) {
		t.Errorf("no process has %+v", none)
	}
}

func TestCPU(t *testing.T) {
	for _, row := range []struct {
		stat string
		want time.Duration
		ok   bool
	}{
		{"42 (conductord) S 1 42 42 0 -1 4194560 900 0 0 0 150 25 0 0 20 0 9 0 123 456", 1750 * time.Millisecond, true},
		{"42 (odd ) name) S 1 42 42 0 -1 4194560 900 0 0 0 1 2 0 0 20 0 9 0 123 456", 30 * time.Millisecond, true},
		{"42 (short) S 1 42", 0, false},
		{"42 (words) S 1 42 42 0 -1 4194560 900 0 0 0 some time 0 0", 0, false},
		{"", 0, false},
	} {
		if got, ok := measure.ParseCPU(row.stat); got != row.want || ok != row.ok {
			t.Errorf("%q: %v, %t", row.stat, got, ok)
		}
	}
	if _, ok := measure.ReadCPU(os.Getpid()); ok != (runtime.GOOS == "linux") {
		t.Errorf("this process's time is known: %t", ok)
	}
}
