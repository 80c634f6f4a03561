// Command floods measures how much each flood of package attack leaves for other clients. It counts the
// jobs that an honest client posts and the new clients that get an answer. The figures are shares of
// the same figures beside a process that only computes. A flood of new connections costs mainly the
// kernel, so it is compared with a flood of a server that closes each connection at once. The command
// fails if a flood leaves less than -least of the posts.
//
//	go run ./test/attack/floods -only PING
//
// With -elections, it instead measures the time without a leader.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/test/attack"
)

var (
	binary      = flag.String("binary", "", "the conductord program; empty: build it")
	only        = flag.String("only", "", "a regular expression of the floods to make; empty: all")
	seconds     = flag.Duration("time", time.Second, "how long each measurement takes")
	pairs       = flag.Int("pairs", 4, "measurements of each flood, each beside one without")
	elections   = flag.Int("elections", 0, "kill the leader so often beside each flood, and so often without, instead of measuring rates")
	connections = flag.Int("connections", 64, "connections of a flood")
	least       = flag.Float64("least", 0.8, "the part of the posts that a flood must leave")
	api         = flag.String("api", "", "of the process that floods: the node")
	number      = flag.Int("flood", -1, "of the process that floods: which flood; beyond the last: none")
	bare        = flag.String("bare", "", "of the server that closes each connection: where it listens")
	ca          = flag.String("ca", "", "of the process that floods: the authority")
	token       = flag.String("token", "", "of the process that floods: a token")
)

// others is the nice value of the flooding process, because nodes and honest clients share its
// processors.
const others = 10

func main() {
	flag.Parse()
	work := measure
	switch {
	case *api != "":
		work = flood
	case *bare != "":
		work = closeAll
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// flood is the process that floods, until it is killed.
func flood() error {
	roots := x509.NewCertPool()
	text, err := os.ReadFile(*ca)
	if err != nil {
		return err
	}
	roots.AppendCertsFromPEM(text)
	if *number < 0 || *number >= len(attack.Floods) {
		attack.Alone(context.Background(), runtime.GOMAXPROCS(0))
		return nil
	}
	target := attack.Target{API: *api, Token: *token, TLS: &tls.Config{RootCAs: roots}}
	attack.Floods[*number].Run(context.Background(), target, max(*connections, attack.Floods[*number].Hosts))
	return nil
}

// closeAll is the server that closes each connection, until it is killed.
func closeAll() error {
	listener, err := net.Listen("tcp", *bare)
	for err == nil {
		var conn net.Conn
		if conn, err = listener.Accept(); err == nil {
			_ = conn.Close()
		}
	}
	return err
}

func measure() error {
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "floods-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	if *binary == "" {
		*binary = filepath.Join(dir, "conductord")
		if err := local.Build(ctx, *binary); err != nil {
			return err
		}
	}
	c, err := attack.Start(ctx, local.Options{Binary: *binary, Dir: dir})
	if err != nil {
		return err
	}
	defer c.Close()
	if *elections > 0 {
		return measureElections(ctx, c, dir, wanted)
	}
	closing, stop, err := startClosing()
	if err != nil {
		return err
	}
	defer stop()
	fmt.Printf("%-28s %5s %8s %8s %8s %10s   %s\n", "flood", "hosts", "posts", "new", "MiB", "slowest", "processors of the node: with, without")
	failed := false
	for i, kind := range attack.Floods {
		if !wanted.MatchString(kind.Name) {
			continue
		}
		var without, with rates
		for range *pairs {
			node := leader(ctx, c)
			if kind.Connects {
				without.add(ratesBeside(ctx, c, node, dir, i, closing))
			} else {
				without.add(ratesBeside(ctx, c, node, dir, len(attack.Floods), node.API))
			}
			with.add(ratesBeside(ctx, c, node, dir, i, node.API))
		}
		posts, fresh := with.posts/max(1, without.posts), with.fresh/max(1, without.fresh)
		fmt.Printf("%-28s %5d %8.2f %8.2f %8d %10s   %.2f %.2f\n", kind.Name, kind.Hosts, posts, fresh, with.memory, with.slowest.Round(time.Millisecond),
			with.processors/float64(*pairs), without.processors/float64(*pairs))
		failed = failed || posts < *least
	}
	if failed {
		return fmt.Errorf("a flood leaves less than %.2f of the posts", *least)
	}
	return nil
}

// rates are the rates of honest clients.
type rates struct {
	posts, fresh float64
	slowest      time.Duration // post
	memory       int           // maximum memory of the node, in MiB
	processors   float64       // used by the node
}

func (r *rates) add(more rates) {
	r.posts, r.fresh, r.processors = r.posts+more.posts, r.fresh+more.fresh, r.processors+more.processors
	r.slowest, r.memory = max(r.slowest, more.slowest), max(r.memory, more.memory)
}

// startClosing starts the server that closes each connection.
func startClosing() (address string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address = listener.Addr().String()
	_ = listener.Close()
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	command := exec.Command(self, "-bare", address)
	command.Stderr = os.Stderr
	return address, func() { _ = command.Process.Kill(); _ = command.Wait() }, command.Start()
}

// startFlood starts a process that floods an address. It returns once the flood has begun.
func startFlood(token, dir string, number int, flooded string) (stop func()) {
	self, _ := os.Executable()
	command := exec.Command(self, "-api", flooded, "-flood", fmt.Sprint(number), "-connections", fmt.Sprint(*connections), "-ca", filepath.Join(dir, "ca.pem"), "-token", token)
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		panic(err)
	}
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, command.Process.Pid, others)
	time.Sleep(700 * time.Millisecond)
	return func() { _ = command.Process.Kill(); _ = command.Wait(); time.Sleep(300 * time.Millisecond) }
}

// ratesBeside measures rates at a node during a flood of an address.
func ratesBeside(ctx context.Context, c *attack.Cluster, node *local.Node, dir string, number int, flooded string) rates {
	target := c.Target(node.API)
	defer startFlood(target.Token, dir, number, flooded)()

	used := ticks(node)
	ctx, cancel := context.WithTimeout(ctx, *seconds)
	defer cancel()
	var posts, fresh, slowest atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				if _, err := jobs.PostOne(ctx, c.Honest, attack.Posting()); err == nil {
					posts.Add(1)
				}
				if took := int64(time.Since(began)); took > slowest.Load() {
					slowest.Store(took)
				}
			}
		})
	}
	all.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			transport := &http.Transport{TLSClientConfig: target.TLS.Clone(), ForceAttemptHTTP2: true}
			request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+node.API+"/readyz", nil)
			answer, err := transport.RoundTrip(request)
			if err == nil {
				_ = answer.Body.Close()
				fresh.Add(1)
			}
			transport.CloseIdleConnections()
		}
	})
	all.Wait()
	return rates{float64(posts.Load()), float64(fresh.Load()), time.Duration(slowest.Load()), memory(node), (ticks(node) - used) / seconds.Seconds()}
}

// leader waits until a node leads.
func leader(ctx context.Context, c *attack.Cluster) *local.Node {
	for ; ; time.Sleep(20 * time.Millisecond) {
		for _, node := range c.Nodes {
			if status, err := c.Honest.Status(ctx, node.API); err == nil && status.State == "leader" {
				return node
			}
		}
	}
}

// ticks is the processor time of a node, in seconds.
func ticks(node *local.Node) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", node.PID()))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return float64(user+system) / 100
}

// memory is the maximum memory of a node, in MiB.
func memory(node *local.Node) (mib int) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", node.PID()))
	if err != nil {
		return 0
	}
	var kib int
	if found := regexp.MustCompile(`VmHWM:\s+(\d+)`).FindSubmatch(status); found != nil {
		_, _ = fmt.Sscan(string(found[1]), &kib)
	}
	return kib >> 10
}
