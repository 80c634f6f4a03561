//go:build unix

package stream_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/raftboard/stream"
	"github.com/conductord/conductord/raftboard/wire"
)

// BenchmarkCalls compares a small call on a stream with the same call on its own, over
// TCP and with both ends in this process. Compare the processor time of both, cpu-us/op:
//
//	go test ./raftboard/stream -run - -bench Calls -count 6
func BenchmarkCalls(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("plain/callers=%d", callers), func(b *testing.B) {
			board := conductordv1connect.NewBoardServiceClient(listening(b))
			drive(b, callers, func(ctx context.Context) error {
				_, err := board.GetJob(ctx, connect.NewRequest(&v1.GetJobRequest{Id: "0198a3c2-0000-7000-8000-000000000001"}))
				return err
			})
		})
		b.Run(fmt.Sprintf("stream/callers=%d", callers), func(b *testing.B) {
			life, end := context.WithCancel(context.Background())
			var work sync.WaitGroup
			client, url, options := listening(b)
			c := stream.NewCaller(stream.CallerOptions{
				Node: conductordv1connect.NewStreamServiceClient(client, url, options),
				Life: life, Spawn: func(run func()) bool { work.Go(run); return true },
			})
			for c.Want(); !c.Ready(); {
				runtime.Gosched()
			}
			drive(b, callers, func(ctx context.Context) error {
				_, _, err := get(ctx, c, "0198a3c2-0000-7000-8000-000000000001")
				return err
			})
			end()
			work.Wait()
		})
	}
}

// listening runs a node until the end of the benchmark, and returns a client and an address for it.
func listening(b *testing.B) (client *http.Client, url string, options connect.ClientOption) {
	n := &node{get: echo}
	mux := http.NewServeMux()
	mux.Handle(conductordv1connect.NewBoardServiceHandler(n, wire.HandlerOptions()...))
	mux.Handle(n.server().Handler(wire.HandlerOptions()...))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: mux, Protocols: protocols}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	transport := &http.Transport{Protocols: protocols}
	b.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		serving.Wait()
	})
	return &http.Client{Transport: transport}, "http://" + listener.Addr().String(), connect.WithClientOptions(wire.ClientOptions()...)
}

// drive makes calls from several callers in parallel.
func drive(b *testing.B, callers int, call func(context.Context) error) {
	b.ReportAllocs()
	before := processorTime(b)
	b.ResetTimer()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for range b.N/callers + min(1, max(0, b.N%callers-i)) {
				ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
				if err := call(ctx); err != nil {
					b.Error(err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/1e3/float64(b.N), "cpu-us/op")
}

// processorTime is the processor time of this process so far.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
