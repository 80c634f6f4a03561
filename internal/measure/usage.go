package measure

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Usage is the resource usage of a process up to a moment, or within a window.
type Usage struct {
	CPU         time.Duration `json:"cpu_ns"`
	Allocations float64       `json:"allocations"` // number of heap allocations
	Allocated   float64       `json:"allocated"`   // bytes of all allocations
	LogWrites   float64       `json:"log_writes"`  // synced writes of the raft log
	Resident    float64       `json:"resident"`    // resident memory in bytes, now or at the end of the window
}

// Since returns the usage since an earlier measurement.
func (u Usage) Since(before Usage) Usage {
	u.CPU -= before.CPU
	u.Allocations -= before.Allocations
	u.Allocated -= before.Allocated
	u.LogWrites -= before.LogWrites
	return u
}

// Per divides the usage by a number of operations, except the resident memory.
func (u Usage) Per(operations float64) Usage {
	u.CPU = time.Duration(Share(float64(u.CPU), operations))
	u.Allocations = Share(u.Allocations, operations)
	u.Allocated = Share(u.Allocated, operations)
	u.LogWrites = Share(u.LogWrites, operations)
	return u
}

// MeanUsage returns the mean usage of several processes; zero without processes.
func MeanUsage(all []Usage) Usage {
	var mean Usage
	n := float64(len(all))
	for _, u := range all {
		mean.CPU += u.CPU
		mean.Allocations += u.Allocations / n
		mean.Allocated += u.Allocated / n
		mean.LogWrites += u.LogWrites / n
		mean.Resident += u.Resident / n
	}
	mean.CPU = time.Duration(Share(float64(mean.CPU), n))
	return mean
}

// OwnUsage returns the usage of this process, without the writes of a raft log.
func OwnUsage() (Usage, error) {
	var spent syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &spent); err != nil {
		return Usage{}, fmt.Errorf("cannot read what this process has used: %w", err)
	}
	// runtime/metrics counts an object only when its span leaves a processor's
	// cache, so a short window could lose hundreds of them.
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	return Usage{
		CPU:         time.Duration(spent.Utime.Nano() + spent.Stime.Nano()),
		Allocations: float64(heap.Mallocs), Allocated: float64(heap.TotalAlloc),
		Resident: ReadMemory(os.Getpid()).Resident,
	}, nil
}

// NodeUsage returns the usage of a process with the metrics of a conductord.
func NodeUsage(pid int, counters Counters) Usage {
	return Usage{
		CPU:         time.Duration(counters["process_cpu_seconds_total"] * float64(time.Second)),
		Allocations: counters["go_memstats_mallocs_total"], Allocated: counters["go_memstats_alloc_bytes_total"],
		LogWrites: counters["conductord_log_write_duration_seconds_count"], Resident: ReadMemory(pid).Resident,
	}
}

// ReadCPU is the processor time of a process, which the system counts in hundredths of a
// second. ok is false on systems other than Linux.
func ReadCPU(pid int) (used time.Duration, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	return parseCPU(string(text))
}

// parseCPU reads the user and system time, the 12th and 13th field behind the
// program's name, which is in brackets and may contain anything.
func parseCPU(stat string) (time.Duration, bool) {
	const user, system, tick = 11, 12, 10 * time.Millisecond
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= system {
		return 0, false
	}
	ticks := int64(0)
	for _, field := range []string{fields[user], fields[system]} {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, false
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, true
}

// Memory is the memory of a process, in bytes.
type Memory struct {
	Resident  float64 `json:"resident"`
	Anonymous float64 `json:"anonymous"` // anonymous memory: heap and stacks
	Mapped    float64 `json:"mapped"`    // of mapped files; the system can drop and read it again
}

// ReadMemory reads the memory of a process from the system. All values are zero on systems
// other than Linux.
func ReadMemory(pid int) Memory {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}
	}
	return parseMemory(text)
}

func parseMemory(status []byte) Memory {
	var m Memory
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		number, unit, _ := strings.Cut(strings.TrimSpace(value), " ")
		kibibytes, err := strconv.ParseFloat(number, 64)
		if err != nil || unit != "kB" {
			continue
		}
		const kibi = 1 << 10
		switch name {
		case "VmRSS":
			m.Resident = kibibytes * kibi
		case "RssAnon":
			m.Anonymous = kibibytes * kibi
		case "RssFile":
			m.Mapped = kibibytes * kibi
		}
	}
	return m
}
