package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/credentials"
)

// Limits within which the doctor reports "good".
const (
	goodFiles     = 8_192                 // open files: connections and raft's own
	goodSync      = 10 * time.Millisecond // median of a write of 4 KiB with fsync
	slowSync      = 100 * time.Millisecond
	syncs         = 40
	goodClock     = time.Second
	goodExpiry    = 30 * 24 * time.Hour
	doctorTimeout = 2 * time.Second // for a port or a node
)

// Finding is one line of the doctor's report.
type Finding struct {
	Check string `json:"check"`
	State string `json:"state"` // good, note or bad
	Text  string `json:"text"`
	Do    string `json:"do,omitempty"` // the next step
}

// examination collects the findings of the doctor.
type examination struct {
	config   config.Config
	secure   *credentials.Store // nil: none
	findings []Finding
}

func (e *examination) add(check, state, text, do string) {
	e.findings = append(e.findings, Finding{check, state, text, do})
}

// say adds a finding. Without an error, it is good.
func (e *examination) say(check string, err error, good, do string) bool {
	if err != nil {
		e.add(check, "bad", err.Error(), do)
		return false
	}
	e.add(check, "good", good, "")
	return true
}

func doctorCommand(p *cli.Program) *cobra.Command {
	return configured(p, &cobra.Command{
		Use:   "doctor --config FILE",
		Short: "Check this machine and the cluster for problems; exit 1 if any are serious",
		Long: "Check the configuration, data directory, disk, system limits, handlers, backup directory, ports of all members,\n" +
			"and status of all nodes. Run the command at any time, before the node's first start or while the node\n" +
			"runs. To time the disk, the command writes a small file into the data directory and removes it.",
		Args: cobra.NoArgs,
	}, func(ctx context.Context, loaded config.Config, _ []string) error {
		e := &examination{config: loaded}
		e.add("configuration", "good", "node "+loaded.Node+" of cluster "+loaded.Cluster.ID, "")
		e.certificates()
		e.directory()
		e.socket()
		e.limits()
		e.handlers()
		e.valueKeys()
		e.backups()
		e.members(ctx)
		return writeFindings(p, e.findings)
	})
}

func writeFindings(p *cli.Program, findings []Finding) error {
	write := func() error {
		rows := make([][]string, 0, len(findings))
		for _, f := range findings {
			rows = append(rows, []string{f.Check, f.State, f.Text, cli.OrDash(f.Do)})
		}
		return p.WriteTable([]string{"check", "state", "found", "what to do"}, rows)
	}
	if p.JSON() {
		write = func() error { return p.WriteJSON(map[string][]Finding{"findings": findings}) }
	}
	if err := write(); err != nil {
		return err
	}
	if slices.ContainsFunc(findings, func(f Finding) bool { return f.State == "bad" }) {
		return errors.New("this machine has problems: see the bad findings above")
	}
	return nil
}

// certificates checks the files for TLS.
func (e *examination) certificates() {
	secure, err := openCredentials(e.config, hclog.NewNullLogger())
	switch {
	case err == nil && secure == nil:
		e.add("certificates", "note", "none: the ports use plain text", "see \"Set up\" in docs/security.md")
		return
	case err == nil:
		err = secure.Check(e.config.Cluster.ID, e.config.Node)
	}
	if err != nil {
		e.say("certificates", err, "", "fix the files of [tls], or their modes")
		return
	}
	e.secure = secure
	expires := secure.Expires()
	left, text := time.Until(expires), "they expire on "+expires.Format(time.DateOnly)
	switch {
	case left < 0:
		e.add("certificates", "bad", text, "issue new certificates: conductord cert issue")
	case left < goodExpiry:
		e.add("certificates", "note", text, "issue new certificates soon: conductord cert issue")
	default:
		e.add("certificates", "good", text, "")
	}
}

// directory checks the data directory and its disk. If the data directory does not exist, it
// checks the parent.
func (e *examination) directory() {
	dir := e.config.DataDir
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		e.add("data directory", "note", dir+" does not exist yet", "")
		dir = filepath.Dir(dir)
		info, err = os.Stat(dir)
	}
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", dir)
	}
	others := fs.FileMode(0o077)
	if othersRun(e.config.Handlers) {
		others &^= passable
	}
	if err == nil && dir == e.config.DataDir && info.Mode().Perm()&others != 0 {
		e.add("data directory", "bad", fmt.Sprintf("other users can read %s: its mode is %#o", dir, info.Mode().Perm()), "chmod 700 "+dir)
	} else if !e.say("data directory", err, dir, "create it, or mount its disk") {
		return
	}
	e.disk(dir)
}

// socket reports only faults, because not every node has a socket.
func (e *examination) socket() {
	if err := checkSocket(e.config); err != nil {
		e.say("socket", err, "", "set data_dir to a shorter path, such as a link to it")
	}
}

// disk checks the space on a disk, and measures its speed.
func (e *examination) disk(dir string) {
	if free, known := freeBytes(dir); known {
		if needs := int64(e.config.DiskReserve) * 5 / 2; free < needs {
			e.add("disk space", "bad", fmt.Sprintf("%d MiB free", free>>20), fmt.Sprintf("an empty node needs %d MiB: use a larger disk, or a smaller disk_reserve", needs>>20))
		} else {
			e.add("disk space", "good", fmt.Sprintf("%d MiB free", free>>20), "")
		}
	}
	median, err := timeDisk(dir)
	text := fmt.Sprintf("a write of 4 KiB with fsync takes %v (median of %d)", median.Round(10*time.Microsecond), syncs)
	switch {
	case err != nil:
		e.say("disk latency", err, "", "give this user write access to the directory")
	case median > slowSync:
		e.add("disk latency", "bad", text, "use a local disk, or a disk with a battery-backed write cache")
	case median > goodSync:
		e.add("disk latency", "note", text, "each write of the cluster waits for two such writes")
	default:
		e.add("disk latency", "good", text, "")
	}
}

// timeDisk is the median time of a small durable write.
func timeDisk(dir string) (time.Duration, error) {
	file, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return 0, err
	}
	defer func() { _ = errors.Join(file.Close(), os.Remove(file.Name())) }()
	block, took := make([]byte, 4<<10), make([]time.Duration, 0, syncs)
	for range syncs {
		began := time.Now()
		if _, err := file.Write(block); err != nil {
			return 0, err
		}
		if err := file.Sync(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

func (e *examination) limits() {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return // a system without such limits
	}
	text := fmt.Sprintf("limit of %d open files", files.Max)
	if files.Max < goodFiles {
		e.add("open files", "bad", text, fmt.Sprintf("set LimitNOFILE=65536 in the unit, or ulimit -n, to at least %d", goodFiles))
		return
	}
	e.add("open files", "good", text, "")
}

func (e *examination) handlers() {
	if len(e.config.Conductor.Handlers) == 0 || !e.config.Conductor.Enabled {
		return
	}
	_, err := handler.Open(e.config.Conductor.Handlers...)
	err = errors.Join(err, confinement(e.config.Handlers).Check())
	e.say("handlers", err, fmt.Sprint(e.config.Conductor.Handlers), "fix conductor.handlers, the modes of the directories, or [handlers]")
}

func (e *examination) valueKeys() {
	if e.config.Conductor.ValueKeys == "" || !e.config.Conductor.Enabled {
		return
	}
	keys, err := valueKeysOf(e.config)
	text := ""
	if err == nil {
		text = fmt.Sprintf("%d in %s; %s encrypts", len(keys.IDs()), e.config.Conductor.ValueKeys, keys.Current())
	}
	e.say("value keys", err, text, "fix conductor.value_keys, or the file and its mode")
}

func (e *examination) backups() {
	if e.config.Backup.Directory == "" {
		e.add("backups", "note", "this node has no scheduled backups", "set backup.directory on one node, on another disk")
		return
	}
	info, err := os.Stat(e.config.Backup.Directory)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", e.config.Backup.Directory)
	}
	if err == nil {
		err = tryWrite(e.config.Backup.Directory)
	}
	e.say("backups", err, e.config.Backup.Directory, "create the directory, or mount its disk, and let the user of the node write there")
}

// tryWrite creates a file in a directory, and removes it.
func tryWrite(dir string) error {
	file, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return fmt.Errorf("cannot write to %s: %w", dir, err)
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// members checks the ports of all members in the file, and the nodes' statuses.
func (e *examination) members(ctx context.Context) {
	for _, member := range e.config.Cluster.Members {
		for _, port := range []struct{ name, address string }{{"raft", member.Raft}, {"API", member.API}} {
			conn, err := net.DialTimeout("tcp", port.address, doctorTimeout)
			if err != nil {
				e.add(port.name+" port of "+member.Name, "note", err.Error(), "start the node, or open the firewall")
				continue
			}
			_ = conn.Close()
			e.add(port.name+" port of "+member.Name, "good", port.address+" answers", "")
		}
	}
	var endpoints []string
	for _, member := range e.config.Cluster.Members {
		endpoints = append(endpoints, member.API)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*doctorTimeout)
	defer cancel()
	options := raftboard.Options{Endpoints: endpoints, Patience: doctorTimeout}
	if e.secure != nil {
		options.TLS = e.secure.Members(e.config.Cluster.ID)
	}
	client, err := raftboard.Open(ctx, options)
	if errors.Is(err, jobs.ErrNotAllowed) {
		e.add("cluster", "note", err.Error(), "ask an administrator to add this node: conductord cluster join")
		return
	}
	if err != nil {
		e.add("cluster", "note", "no node answers", "start the nodes")
		return
	}
	defer client.Close()
	versions := map[string]bool{}
	for _, node := range client.Cluster(ctx) {
		if node.Err != nil {
			continue // the check of its port has reported this
		}
		e.node(&node.Status)
		versions[node.Status.Version] = true
	}
	if len(versions) > 1 {
		e.add("versions", "note", fmt.Sprintf("the nodes run %d different programs", len(versions)), "see conductord cluster upgrade-status")
	}
}

func (e *examination) node(s *raftboard.Status) {
	check := "node " + s.Node
	switch {
	case s.Cluster != e.config.Cluster.ID:
		e.add(check, "bad", fmt.Sprintf("the node belongs to cluster %q", s.Cluster), "correct cluster.id, or the addresses in cluster.members")
	case !s.Ready:
		e.add(check, "bad", "not ready: "+s.NotReady, "see the log of the node")
	case s.ClockOffset != nil && s.ClockOffset.Abs() > goodClock:
		e.add(check, "bad", fmt.Sprintf("clock is off by %v", s.ClockOffset.Round(time.Millisecond)), "check the time service of its machine")
	default:
		e.add(check, "good", fmt.Sprintf("%s, program %s", s.State, s.Version), "")
	}
	if s.MembersDiffer != "" {
		e.add(check, "note", "configuration is out of date: "+s.MembersDiffer, "update cluster.members in the configuration")
	}
}
