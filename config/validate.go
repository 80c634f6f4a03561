package config

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/conductord/conductord/internal/duration"
)

// Limits of a cluster.
const (
	// MaxMembers limits the members of a new cluster. All of them vote, and a cluster has at most
	// seven voters.
	MaxMembers = 7
	// maxBoards and maxLabels limit the boards and labels of one conductor. maxHandlerDirs limits
	// the directories that are searched for every step's handler.
	maxBoards      = 64
	maxLabels      = 64
	maxHandlerDirs = 16
	// maxSharedSecrets limits the names for one key of secrets.boards. Give more secrets a common
	// prefix.
	maxSharedSecrets = 256
	// minHandOver is the minimum time between two events: at 0.8 TTL, a conductor that has lost
	// contact kills its steps; later, another conductor can claim its jobs.
	minHandOver = 500 * time.Millisecond
)

// LogStores are the stores of raft's log, the default first.
var LogStores = []string{"bolt", "wal"}

// plainName matches the names of nodes and clusters. They are part of file names, headers, metrics
// and logs.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

const plainNameRule = "must start with a letter or digit, and contain at most 63 letters, digits, dots, dashes and underscores"

// checkTogether finds the faults that the ranges of single keys do not cover. It reports them under
// keys of the table, or keys such as cluster.members[0].raft.
func checkTogether(c *Config, blame func(key, message string)) {
	checkNode(c, blame)
	checkTLS(c, blame)
	checkJWT(c, blame)
	checkMembers(c.Cluster.Members, blame)
	checkTimes(c, blame)
	checkDashboard(c, blame)
	checkConductor(c, blame)
	checkHandlers(c, blame)
	checkSecrets(c, blame)
	checkTraces(c, blame)
	if !slices.Contains([]string{"trace", "debug", "info", "warn", "error"}, c.Log.Level) {
		blame("log.level", fmt.Sprintf("must be trace, debug, info, warn or error, not %.64q", c.Log.Level))
	}
}

func checkNode(c *Config, blame func(key, message string)) {
	checkPlainName("node", c.Node, blame)
	checkPlainName("cluster.id", c.Cluster.ID, blame)
	if _, found := c.Self(); !found && c.Node != "" && len(c.Cluster.Members) > 0 {
		blame("node", fmt.Sprintf("%.64q is not in cluster.members", c.Node))
	}
	switch {
	case c.DataDir == "":
		blame("data_dir", "must be set")
	case strings.ContainsFunc(c.DataDir, unicode.IsControl):
		blame("data_dir", "contains a control character")
	}
	if c.Topology.File != "" && !filepath.IsAbs(c.Topology.File) {
		blame("topology.file", fmt.Sprintf("must be an absolute path, not %.128q", c.Topology.File))
	}
	if !slices.Contains(LogStores, c.LogStore) {
		blame("log_store", fmt.Sprintf("must be bolt or wal, not %.64q", c.LogStore))
	}
	if c.RaftListen != "" {
		checkAddress("raft_listen", c.RaftListen, true, blame)
	}
	if c.APIListen != "" {
		checkAddress("api_listen", c.APIListen, true, blame)
	}
	if c.RaftAddress() != "" && c.RaftAddress() == c.APIAddress() {
		blame("api_listen", "is also the address of the raft port; use another port for the API")
	}
}

// checkTLS refuses plain text on addresses that other machines can reach.
func checkTLS(c *Config, blame func(key, message string)) {
	if c.TLS != (TLS{}) {
		for _, file := range []struct{ key, path string }{{"tls.ca", c.TLS.CA}, {"tls.cert", c.TLS.Cert}, {"tls.key", c.TLS.Key}} {
			if file.path == "" {
				blame(file.key, "must be set, because the other files of tls are set")
			}
		}
		return
	}
	for _, of := range []struct{ port, address string }{{"raft", c.RaftAddress()}, {"API", c.APIAddress()}} {
		if host, _, err := net.SplitHostPort(of.address); err == nil && !c.Insecure && !Loopback(host) {
			blame("tls.cert", fmt.Sprintf("must be set, with tls.key and tls.ca: the %s port listens on %s, which other machines can reach; without TLS, they can do everything "+
				"(see conductord cert; insecure = true allows it)", of.port, of.address))
			return
		}
	}
}

// checkJWT refuses an incomplete issuer, and an issuer without TLS.
func checkJWT(c *Config, blame func(key, message string)) {
	if c.JWT.Issuer == "" && c.JWT.Audience == "" && c.JWT.Keys == "" {
		return
	}
	for _, of := range []struct{ key, value string }{
		{"jwt.issuer", c.JWT.Issuer}, {"jwt.audience", c.JWT.Audience}, {"jwt.keys", c.JWT.Keys}, {"jwt.claim", c.JWT.Claim},
	} {
		if of.value == "" {
			blame(of.key, "must be set, because other keys of jwt are set")
		}
	}
	if keys := c.JWT.Keys; keys != "" && !filepath.IsAbs(keys) && !strings.HasPrefix(keys, "https://") {
		blame("jwt.keys", fmt.Sprintf("must be an absolute path or an https URL, not %.128q", keys))
	}
	if c.TLS == (TLS{}) {
		blame("jwt.issuer", "requires tls: with plain text, others on the network can read tokens")
	}
}

// Loopback reports whether only this machine can reach the host.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func checkPlainName(key, name string, blame func(key, message string)) {
	switch {
	case name == "":
		blame(key, "must be set")
	case !plainName.MatchString(name):
		blame(key, plainNameRule)
	}
}

// memberKey returns the key of a member, for faults and lines.
func memberKey(i int) string { return "cluster.members[" + strconv.Itoa(i) + "]" }

func checkMembers(members []Member, blame func(key, message string)) {
	switch {
	case len(members) == 0:
		blame("cluster.members", "must list all nodes of the cluster, including this node")
	case len(members) > MaxMembers:
		blame("cluster.members", fmt.Sprintf("lists %d nodes; the limit is %d", len(members), MaxMembers))
		return
	}
	names, addresses := make(map[string]bool), make(map[string]string)
	for i, member := range members {
		key := memberKey(i)
		checkPlainName(key+".name", member.Name, blame)
		if names[member.Name] {
			blame(key+".name", fmt.Sprintf("there is another member %.64q", member.Name))
		}
		names[member.Name] = true
		for _, of := range []struct{ field, address string }{{".raft", member.Raft}, {".api", member.API}} {
			checkAddress(key+of.field, of.address, false, blame)
			if other, taken := addresses[of.address]; taken && of.address != "" {
				blame(key+of.field, fmt.Sprintf("is also the address of %s", other))
			}
			addresses[of.address] = key + of.field
		}
	}
}

// checkAddress checks host:port. A listening address needs no host. The address of a member must
// name one machine.
func checkAddress(key, address string, listen bool, blame func(key, message string)) {
	if address == "" {
		blame(key, "must be set")
		return
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || strings.ContainsFunc(host, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) {
		blame(key, fmt.Sprintf("must be HOST:PORT, not %.128q", address))
		return
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		blame(key, fmt.Sprintf("must have a port from 1 to 65535, not %.64q", port))
	}
	if ip := net.ParseIP(host); !listen && (host == "" || ip != nil && ip.IsUnspecified()) {
		blame(key, fmt.Sprintf("must be the host at which the other members reach this node, not %.64q", host))
	}
}

func checkTimes(c *Config, blame func(key, message string)) {
	raft, sessions := c.Raft, c.Sessions
	if raft.LeaderLease > raft.Heartbeat {
		blame("raft.leader_lease", fmt.Sprintf("is %s; the maximum is raft.heartbeat, %s: with a longer lease, an old leader could act after the election of a new leader",
			duration.Text(raft.LeaderLease), duration.Text(raft.Heartbeat)))
	}
	if raft.Election < raft.Heartbeat {
		blame("raft.election", fmt.Sprintf("is %s; the minimum is raft.heartbeat, %s", duration.Text(raft.Election), duration.Text(raft.Heartbeat)))
	}
	if raft.TrailingLogs < 2*raft.SnapshotThreshold {
		blame("raft.trailing_logs", fmt.Sprintf("is %d; the minimum is twice raft.snapshot_threshold, %d: a node that starts from an older snapshot needs the later log entries",
			raft.TrailingLogs, raft.SnapshotThreshold))
	}
	if change := 2 * (raft.Heartbeat + raft.Election); len(c.Cluster.Members) > 1 && sessions.TTL < change {
		blame("sessions.ttl", fmt.Sprintf("is %s; the minimum is twice the sum of raft.heartbeat and raft.election, %s: with a shorter TTL, a change of leader would end claims of healthy conductors",
			duration.Text(sessions.TTL), duration.Text(change)))
	}
	if spare := sessions.TTL/5 + sessions.Grace + sessions.CoolDown; spare < minHandOver {
		blame("sessions.grace", fmt.Sprintf("is too short: a fifth of sessions.ttl, plus sessions.grace and sessions.cool_down, is %s; the sum must be at least %s, so that a killed step has ended before another conductor continues",
			duration.Text(spare), duration.Text(minHandOver)))
	}
	if c.Limits.Value > c.Limits.Command/2 {
		blame("limits.value", fmt.Sprintf("is %d; the maximum is half of limits.command, %d: a command contains more than one value",
			c.Limits.Value, c.Limits.Command))
	}
}

// minEncrypted is the size of the longest failure that a conductor records, with all its texts
// encrypted: 96 texts of the failure and its causes.
const minEncrypted = 64 << 10

func checkConductor(c *Config, blame func(key, message string)) {
	if c.Conductor.Name != "" {
		checkPlainName("conductor.name", c.Conductor.Name, blame)
	}
	checkList("conductor.boards", c.Conductor.Boards, maxBoards, blame)
	checkList("conductor.labels", c.Conductor.Labels, maxLabels, blame)
	checkList("conductor.handlers", c.Conductor.Handlers, maxHandlerDirs, blame)
	if c.Conductor.ValueKeys != "" && c.Limits.Value < minEncrypted {
		blame("limits.value", fmt.Sprintf("is %d; the minimum is %d with conductor.value_keys: encrypted values are longer", c.Limits.Value, minEncrypted))
	}
	if c.Conductor.Enabled && len(c.Conductor.Boards) == 0 {
		blame("conductor.boards", "must name a board, or set conductor.enabled to false")
	}
}

// pagePath matches paths that are not names of the API, and have no special meaning in a URL.
var pagePath = regexp.MustCompile(`^(/[A-Za-z0-9_-]{1,63}){1,4}/$`)

// pageOrigin matches an origin as browsers write it: the scheme, the host in lower case, and a port
// other than the default.
var pageOrigin = regexp.MustCompile(`^https?://([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:]{2,39}\])(:[0-9]{1,5})?$`)

func checkDashboard(c *Config, blame func(key, message string)) {
	if origin := c.Dashboard.Origin; origin != "" && !pageOrigin.MatchString(origin) {
		blame("dashboard.origin", fmt.Sprintf("must be an address without a path, such as https://conductord.example.org, not %.128q", origin))
	}
	if !pagePath.MatchString(c.Dashboard.Path) {
		blame("dashboard.path", fmt.Sprintf("must be a path of 1 to 4 names such as /tools/jobs/, with letters, digits, dashes and underscores, not %.128q", c.Dashboard.Path))
	}
}

func checkHandlers(c *Config, blame func(key, message string)) {
	for _, limit := range []struct {
		key   string
		value int
	}{{"handlers.memory", c.Handlers.Memory}, {"handlers.processes", c.Handlers.Processes}} {
		if limit.value > 0 && !c.Handlers.Cgroups {
			blame(limit.key, "requires handlers.cgroups = true")
		}
	}
	checkPerBoard("handlers.users", c.Handlers.Users, 1, blame)
	if _, all := c.Handlers.Users["*"]; len(c.Handlers.Users) > 0 && c.Handlers.User == "" && !all {
		blame("handlers.users", "requires handlers.user: without it, the handlers of all other boards run as the node's user")
	}
}

// checkPerBoard checks the keys and the names of a PerBoard.
func checkPerBoard(key string, per PerBoard, most int, blame func(key, message string)) {
	if len(per) > maxBoards {
		blame(key, fmt.Sprintf("has %d entries; the limit is %d", len(per), maxBoards))
	}
	for _, boards := range slices.Sorted(maps.Keys(per)) {
		switch names := per[boards]; {
		case boards == "" || len(boards) > maxName || strings.Contains(strings.TrimSuffix(boards, "*"), "*") || strings.ContainsFunc(boards, unicode.IsControl):
			blame(key, fmt.Sprintf("must be the name of a board, or a prefix of names with * at the end, not %.128q", boards))
		case len(names) == 0 || len(names) > most:
			blame(key, fmt.Sprintf("has %d names for %.128q; it must have 1 to %d", len(names), boards, most))
		default:
			checkList(key, names, most, blame)
		}
	}
}

// variablePrefix matches prefixes that end with an underscore, so that a job cannot name other variables.
var variablePrefix = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,62}_$`)

func checkSecrets(c *Config, blame func(key, message string)) {
	for _, of := range []struct{ key, path string }{{"secrets.directory", c.Secrets.Directory}, {"secrets.command", c.Secrets.Command}} {
		if of.path != "" && !filepath.IsAbs(of.path) {
			blame(of.key, fmt.Sprintf("must be an absolute path, not %.128q", of.path))
		}
	}
	checkPerBoard("secrets.boards", c.Secrets.Boards, maxSharedSecrets, blame)
	if prefix := c.Secrets.Environment; prefix != "" && !variablePrefix.MatchString(prefix) {
		blame("secrets.environment", fmt.Sprintf("must be 2 to 64 capital letters, digits and underscores, and end with an underscore, not %.128q", prefix))
	}
}

func checkTraces(c *Config, blame func(key, message string)) {
	endpoint, err := url.Parse(c.Traces.Endpoint)
	switch {
	case c.Traces.Endpoint == "":
	case err != nil || endpoint.Host == "" || endpoint.Scheme != "http" && endpoint.Scheme != "https" || endpoint.User != nil || endpoint.RawQuery != "":
		blame("traces.endpoint", fmt.Sprintf("must be an http or https URL without user and query, not %.128q", c.Traces.Endpoint))
	}
	if path := c.Traces.Headers; path != "" && !filepath.IsAbs(path) {
		blame("traces.headers", fmt.Sprintf("must be an absolute path, not %.128q", path))
	}
}

func checkList(key string, items []string, most int, blame func(key, message string)) {
	if len(items) > most {
		blame(key, fmt.Sprintf("has %d items; the limit is %d", len(items), most))
	}
	for i, item := range items {
		switch {
		case item == "" || len(item) > 4096 || strings.ContainsFunc(item, unicode.IsControl):
			blame(key, fmt.Sprintf("item %d is empty, too long, or contains a control character", i+1))
		case slices.Contains(items[:i], item):
			blame(key, fmt.Sprintf("contains %.128q twice", item))
		}
	}
}
