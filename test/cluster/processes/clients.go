//go:build linux

package processes

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// badClients are dishonest clients, by name. Each continues until ctx ends.
var badClients = map[string]func(ctx context.Context, api, raft string){
	"half-sent bodies": halfSent,
	"gzip bombs":       bombs,
	"unread answers":   unread,
	"raft garbage":     garbage,
}

// BadClientKinds are the names of the bad clients.
func (p *Processes) BadClientKinds() []string {
	var kinds []string
	for kind := range badClients {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
}

// Bounds of the cost of a bad client: several times the cost of an honest load.
const (
	mostMemory = 512 << 20
	mostLog    = 1 << 20 // that is written while it is there
)

// BadClient sends a node requests that no well-behaved client sends.
func (p *Processes) BadClient(ctx context.Context, i int, kind string) {
	node := p.nodes.Nodes[i]
	before, pid := logSize(node.Log), node.PID()
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) // the peak begins here
	badClients[kind](ctx, node.API, node.Raft)
	if peak := peakMemory(pid); peak > mostMemory {
		p.blame(fmt.Errorf("%s came to %d MiB of memory while there were bad clients (%s); %d MiB is the most", node.Name, peak>>20, kind, mostMemory>>20))
	}
	if wrote := logSize(node.Log) - before; wrote > mostLog {
		p.blame(fmt.Errorf("%s wrote %d KiB of log while there were bad clients (%s); %d KiB is the most", node.Name, wrote>>10, kind, mostLog>>10))
	}
}

// blame keeps a fault for Close.
func (p *Processes) blame(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = append(p.wrong, err)
}

func logSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// peakMemory is the most memory that a process had; 0: it is gone.
func peakMemory(pid int) (bytes int64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); words[0] == "VmHWM:" {
			kib, _ := strconv.ParseInt(words[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// atOnce runs a function repeatedly in a number of goroutines, until ctx ends.
func atOnce(ctx context.Context, n int, do func()) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				do()
				const pause = 200 * time.Millisecond // this machine has other work than to be refused
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	all.Wait()
}

// dial connects for a bad client; nil: the node does not listen. The connection
// ends with ctx.
func dial(ctx context.Context, address string) net.Conn {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return conn
}

const post = "/conductord.v1.BoardService/Post"

// halfSent sends three megabytes of four, and waits.
func halfSent(ctx context.Context, api, _ string) {
	half := make([]byte, 3<<20)
	atOnce(ctx, 250, func() {
		conn := dial(ctx, api)
		if conn == nil {
			return
		}
		defer func() { _ = conn.Close() }()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", post, 4<<20)
		_, _ = conn.Write(half)
		_, _ = conn.Read(make([]byte, 1)) // until the node ends it, or ctx does
	})
}

// bombs sends compressed bodies that unpack to a thousand times their size.
func bombs(ctx context.Context, api, _ string) {
	const unpacked = 1 << 30
	var bomb bytes.Buffer
	packer := gzip.NewWriter(&bomb)
	nothing := make([]byte, 1<<20)
	for range unpacked / len(nothing) {
		_, _ = packer.Write(nothing)
	}
	_ = packer.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	atOnce(ctx, 4, func() {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+api+post, bytes.NewReader(bomb.Bytes()))
		must(err)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Content-Encoding", "gzip")
		if answer, err := client.Do(request); err == nil {
			_ = answer.Body.Close()
		}
	})
}

// unread asks again and again on one connection, and reads no answer.
func unread(ctx context.Context, api, _ string) {
	question := fmt.Appendf(nil, "POST /conductord.v1.BoardService/ListJobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
	atOnce(ctx, 60, func() {
		conn := dial(ctx, api)
		if conn == nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		for {
			if _, err := conn.Write(question); err != nil {
				return
			}
		}
	})
}

// garbage sends invalid input to the raft port: noise, the start of a handshake followed by
// noise, a stranger's hello, and nothing at all.
func garbage(ctx context.Context, _, raft string) {
	noise := make([]byte, 64<<10)
	_, _ = rand.Read(noise)
	stranger := []byte(`{"cluster":"elsewhere","name":"` + strings.Repeat("stranger", 480) + `"}`) // as long as it may be
	greeting := append(binary.BigEndian.AppendUint16([]byte("CDR1R"), uint16(len(stranger))), stranger...)
	said := [][]byte{noise, append([]byte("CDR1R"), noise...), append([]byte("CDR1R"), 0xff, 0xff), greeting, nil}
	var all sync.WaitGroup
	for _, text := range said {
		all.Go(func() {
			atOnce(ctx, 40, func() {
				conn := dial(ctx, raft)
				if conn == nil {
					return
				}
				_, _ = conn.Write(text)
				_ = conn.SetReadDeadline(time.Now().Add(time.Second))
				_, _ = conn.Read(make([]byte, 1))
				_ = conn.Close()
			})
		})
	}
	all.Wait()
}
