package topology_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/topology"
)

// TestFileIsFollowed checks that a changed file counts after a second, and that a bad one is
// reported and leaves the topology before.
func TestFileIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "topology.toml")
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(three)
		var failures []error
		source, err := topology.Open(topology.Options{File: path, Failed: func(err error) { failures = append(failures, err) }})
		if err != nil {
			t.Fatal(err)
		}
		write(strings.Replace(three, `"mail" = "a"`, `"mail" = "main"`, 1))
		time.Sleep(time.Second)
		if got := source.Current().Route("mail").Cluster; got != "main" {
			t.Errorf("after the change, mail is in %s", got)
		}
		write("default = 7")
		time.Sleep(time.Second)
		if got := source.Current().Route("mail").Cluster; got != "main" || len(failures) != 1 {
			t.Errorf("after a bad change, mail is in %s, and the failures are %v", got, failures)
		}
		if source.Current(); len(failures) != 1 {
			t.Errorf("a bad file is reported again: %v", failures)
		}
	})
}

// TestServersAreFoundByDNS asks a small DNS server over UDP, which then falls silent.
func TestServersAreFoundByDNS(t *testing.T) {
	var silent atomic.Bool
	var asked atomic.Int64
	resolver := &net.Resolver{PreferGo: true, Dial: dnsServer(t, &silent, &asked)}
	path := filepath.Join(t.TempDir(), "topology.toml")
	if err := os.WriteFile(path, []byte(three), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := topology.Open(topology.Options{File: path, Resolver: resolver})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		servers, err := source.Servers(t.Context(), "b")
		if err != nil || !slices.Equal(servers, []string{"b1.example.org:7070", "b2.example.org:7071"}) {
			t.Fatalf("got %v, %v", servers, err)
		}
	}
	if asked.Load() != 1 {
		t.Errorf("DNS was asked %d times for three answers", asked.Load())
	}
	silent.Store(true)
	if servers, err := source.Servers(t.Context(), "b"); err != nil || len(servers) != 2 {
		t.Errorf("while DNS is silent: got %v, %v", servers, err)
	}
	fresh, err := topology.Open(topology.Options{File: path, Resolver: resolver})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fresh.Servers(t.Context(), "b"); !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("without any answer of DNS: got %v, want %v", err, jobs.ErrUnavailable)
	}
	if servers, err := fresh.Servers(t.Context(), "main"); err != nil || len(servers) != 2 {
		t.Errorf("a cluster with servers in the file: got %v, %v", servers, err)
	}
}

// dnsServer answers every question with two SRV records of priorities 1 and 2.
func dnsServer(t *testing.T, silent *atomic.Bool, asked *atomic.Int64) func(ctx context.Context, network, address string) (net.Conn, error) {
	listening, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listening.Close() })
	go func() { // ends with the test
		buffer := make([]byte, 1500)
		for {
			n, from, err := listening.ReadFrom(buffer)
			if err != nil {
				return
			}
			if silent.Load() {
				_, _ = listening.WriteTo(append(append([]byte{}, buffer[:2]...), 0x81, 0x82, 0, 0, 0, 0, 0, 0, 0, 0), from) // SERVFAIL
				continue
			}
			asked.Add(1)
			_, _ = listening.WriteTo(srvAnswer(buffer[:n]), from)
		}
	}()
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", listening.LocalAddr().String())
	}
}

// srvAnswer is a message of RFC 1035 and RFC 2782 that answers a question.
func srvAnswer(question []byte) []byte {
	end := 12 + strings.IndexByte(string(question[12:]), 0) + 5 // the name, its end, type and class
	message := append([]byte{}, question[:2]...)
	message = append(message, 0x81, 0x80, 0, 1, 0, 2, 0, 0, 0, 0)
	message = append(message, question[12:end]...)
	for i, host := range []string{"b1", "b2"} {
		var target []byte
		for _, label := range []string{host, "example", "org"} {
			target = append(append(target, byte(len(label))), label...)
		}
		target = append(target, 0)
		message = append(message, 0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 60) // the name of the question, SRV, IN, a minute
		message = binary.BigEndian.AppendUint16(message, uint16(6+len(target)))
		message = binary.BigEndian.AppendUint16(message, uint16(i+1))
		message = binary.BigEndian.AppendUint16(message, 0)
		message = binary.BigEndian.AppendUint16(message, uint16(7070+i))
		message = append(message, target...)
	}
	return message
}
