package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/wire"
)

// Flood is one client that floods a node, from several addresses of this machine.
type Flood struct {
	Name     string
	Token    bool // each connection has a token of a principal that may read one board
	Connects bool // only opens connections
	Hosts    int
	run      func(ctx context.Context, f *flooder)
}

// Floods are all kinds of flood. Each uses connections that are open already, unless it opens
// its own.
var Floods = slicesOf(
	frames("PING", false, strings.Repeat(frame(6, 0, 0, strings.Repeat("\x00", 8)), 200)),
	frames("SETTINGS", false, strings.Repeat(frame(4, 0, 0, "\x00\x04\x00\x00\xff\xff\x00\x03\x00\x00\x00\x64"), 200)),
	frames("PRIORITY", false, strings.Repeat(frame(2, 0, 3, "\x00\x00\x00\x01\x10"), 200)),
	frames("WINDOW_UPDATE", false, strings.Repeat(frame(8, 0, 0, "\x00\x00\x00\x01"), 200)),
	frames("unknown frames", false, strings.Repeat(frame(0xbb, 0, 0, strings.Repeat("\x00", 30)), 200)),
	frames("empty DATA", false, strings.Repeat(frame(0, 0, 1, ""), 200)),
	frames("PING of a principal", true, strings.Repeat(frame(6, 0, 0, strings.Repeat("\x00", 8)), 200)),
	frames("empty DATA of a principal", true, strings.Repeat(frame(0, 0, 1, ""), 200)),
	requests("reset requests", false, 1<<30, func(f *flooder, id uint32) string {
		return frame(1, 4, id, f.header("POST", wire.Prefix+"BoardService/ListJobs")) + frame(3, 0, id, "\x00\x00\x00\x08")
	}),
	requests("large headers", false, 2, func(f *flooder, id uint32) string {
		return frame(1, 5, id, f.header("GET", "/healthz")+literal("x-large", strings.Repeat("a", 12<<10)))
	}),
	requests("half-sent forms", false, 900, func(f *flooder, id uint32) string {
		return frame(1, 4, id, f.header("POST", "/dashboard/sign-in")) + frame(0, 0, id, "x")
	}),
	requests("watches without a length", true, 900, func(f *flooder, id uint32) string {
		return frame(1, 4, id, f.header("POST", wire.Prefix+"BoardService/Watch")) + frame(0, 1, id, `{"board":"`+guestBoard+`"}`)
	}),
	requests("refused sessions", true, 50, func(f *flooder, id uint32) string {
		opening := `{"opening":{"id":"` + newID() + `","name":"w","ttl":"60s"}}`
		return frame(1, 4, id, f.header("POST", wire.Prefix+"SessionService/Open")) + frame(0, 1, id, opening)
	}),
	Flood{Name: "TLS handshakes", Connects: true, run: func(ctx context.Context, f *flooder) {
		for ctx.Err() == nil {
			if conn, err := f.secure(ctx); err == nil {
				_ = conn.Close()
			}
		}
	}},
	Flood{Name: "connections", Connects: true, run: func(ctx context.Context, f *flooder) {
		var held []net.Conn
		for ctx.Err() == nil {
			conn, err := f.dial(ctx)
			if err != nil {
				continue
			}
			if held = append(held, conn); len(held) > opened {
				_ = held[0].Close()
				held = held[1:]
			}
		}
	}},
)

// slicesOf makes two floods of each kind: from one host and from a hundred. Floods of principals
// use one host.
func slicesOf(kinds ...Flood) (all []Flood) {
	for _, kind := range kinds {
		one, many := kind, kind
		one.Hosts, many.Hosts = 1, 100
		if all = append(all, one); !kind.Token {
			all = append(all, many)
		}
	}
	return all
}

// Target is a node, with the access data for a flood.
type Target struct {
	API, Token string
	TLS        *tls.Config
}

// Target is a node as an attacker knows it.
func (c *Cluster) Target(api string) Target { return Target{api, c.tokens["guest"], c.client} }

// Run floods a node over a number of parallel connections until ctx ends.
func (f Flood) Run(ctx context.Context, target Target, connections int) {
	var all sync.WaitGroup
	for n := range connections {
		all.Go(func() {
			f.run(ctx, &flooder{target: target, host: net.IPv4(127, 0, 1, byte(1+n%f.Hosts)), token: f.Token})
		})
	}
	all.Wait()
}

// flooder opens one connection after another from one host.
type flooder struct {
	target Target
	host   net.IP
	token  bool
}

func (f *flooder) dial(ctx context.Context) (net.Conn, error) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: f.host}, Timeout: tryTime}
	return dialer.DialContext(ctx, "tcp", f.target.API)
}

// secure makes a connection that ends with ctx.
func (f *flooder) secure(ctx context.Context) (*tls.Conn, error) {
	raw, err := f.dial(ctx)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = raw.Close() })
	config := f.target.TLS.Clone()
	config.ServerName, config.NextProtos = "127.0.0.1", []string{"h2"}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	_, err = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+frame(4, 0, 0, "")+frame(8, 0, 0, "\x3f\x00\x00\x00"))
	return conn, err
}

func (f *flooder) header(method, path string) string {
	header := literal(":method", method) + literal(":scheme", "https") + literal(":path", path) + literal(":authority", f.target.API) + literal("content-type", "application/json")
	if f.token {
		header += literal("authorization", "Bearer "+f.target.Token)
	}
	return header
}

// frames repeats the same frames beside one request, whose token authenticates the connection.
func frames(name string, token bool, part string) Flood {
	return Flood{Name: name, Token: token, run: func(ctx context.Context, f *flooder) {
		for ctx.Err() == nil {
			conn, err := f.secure(ctx)
			if err != nil {
				continue
			}
			go func() { _, _ = io.Copy(io.Discard, conn) }() // ends with the connection
			_, err = io.WriteString(conn, frame(1, 4, 1, f.header("POST", wire.Prefix+"BoardService/ListJobs")))
			for err == nil {
				_, err = io.WriteString(conn, part)
			}
			_ = conn.Close()
		}
	}}
}

// requests sends requests, with a maximum in flight per connection.
func requests(name string, token bool, atOnce int, request func(f *flooder, id uint32) string) Flood {
	return Flood{Name: name, Token: token, run: func(ctx context.Context, f *flooder) {
		for ctx.Err() == nil {
			conn, err := f.secure(ctx)
			if err != nil {
				continue
			}
			slots, over := make(chan struct{}, min(atOnce, 1<<10)), make(chan struct{})
			go func() { // ends with the connection
				readAnswers(conn, slots)
				close(over)
			}()
			for id := uint32(1); err == nil; id += 2 {
				if atOnce < cap(slots)+1 {
					select {
					case slots <- struct{}{}:
					case <-over:
					}
				}
				_, err = io.WriteString(conn, request(f, id))
			}
			_ = conn.Close()
		}
	}}
}

// readAnswers releases a slot for each stream that ends, until the connection ends.
func readAnswers(conn net.Conn, slots <-chan struct{}) {
	const headers, reset, ends = 1, 3, 1
	var head [9]byte
	for {
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		length := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
		if _, err := io.CopyN(io.Discard, conn, length); err != nil {
			return
		}
		if kind := head[3]; kind == reset || kind <= headers && head[4]&ends != 0 {
			select {
			case <-slots:
			default:
			}
		}
	}
}

// frame is a frame of HTTP/2.
func frame(kind, flags byte, stream uint32, payload string) string {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return string(binary.BigEndian.AppendUint32(append(head, flags), stream)) + payload
}

// literal is an uncompressed HPACK header.
func literal(name, value string) string {
	var out bytes.Buffer
	out.WriteByte(0)
	for _, text := range []string{name, value} {
		if n := len(text); n < 127 {
			out.WriteByte(byte(n))
		} else {
			out.WriteByte(127)
			out.Write(binary.AppendUvarint(nil, uint64(n-127)))
		}
		out.WriteString(text)
	}
	return out.String()
}

func newID() string { return jobs.NewSessionID().String() }

// Alone is the baseline without a flood: a number of goroutines compute for the duration of a
// flood.
func Alone(ctx context.Context, n int) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for end := time.Now(); ctx.Err() == nil; end = time.Now() {
				_ = end
			}
		})
	}
	all.Wait()
}
