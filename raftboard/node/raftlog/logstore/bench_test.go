package logstore_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
)

// BenchmarkLogAppend writes entries as in a busy cluster, each durably and separately, like the
// leader. Use cpu-ns/op: the elapsed time depends on the disk and on other writers.
func BenchmarkLogAppend(b *testing.B) {
	for _, kind := range logstore.Kinds {
		for _, size := range []int{600, 16 << 10, 256 << 10} {
			b.Run(fmt.Sprintf("%s/%dB", kind, size), func(b *testing.B) {
				log, err := logstore.Open(b.TempDir(), kind, logstore.Options{Fatal: func(err error) { b.Error(err) }})
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = log.Close() }()
				data := make([]byte, size)
				b.ReportAllocs()
				b.SetBytes(int64(size))
				index, before := uint64(0), processorTime()
				for b.Loop() {
					index++
					if err := log.StoreLog(&raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: data, AppendedAt: time.Now()}); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(processorTime()-before)/float64(index), "cpu-ns/op")
			})
		}
	}
}

// processorTime is the processor time of this process, including the kernel.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
