// Package topology maps boards to clusters. Clusters that share a topology share nothing but
// this file; there is no consensus between them.
//
// A Topology is one file's content, and never changes. A Source follows the file. A board has one
// cluster: the cluster for its exact name, else for the longest prefix that matches, else the
// default. A prefix may name several clusters; see Spread.
package topology

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Limits of a file. The number of clusters is small, because a call without a board may query
// every cluster.
const (
	MaxBytes    = 256 << 10
	MaxClusters = 64
	MaxServers  = 64 // of one cluster
	MaxRules    = 4_096
)

// Cluster is a cluster with some boards.
type Cluster struct {
	ID      string   `toml:"id" json:"id"` // id of its nodes; empty in the file: its name
	Servers []string `toml:"servers" json:"servers,omitempty"`
	SRV     string   `toml:"srv" json:"srv,omitempty"` // the DNS name of its servers, as an alternative to a list
}

// Topology is the content of a file.
type Topology struct {
	Default  string              `json:"default"`
	Clusters map[string]Cluster  `json:"clusters"` // by name
	Boards   map[string][]string `json:"boards,omitempty"`

	digest string
}

// Route is the cluster of a board, with the rule.
type Route struct {
	Cluster string // name
	Rule    string // key in the table of boards; empty: the default
}

// Parse reads the text of a file, and returns all faults in it.
func Parse(text []byte) (*Topology, error) {
	if len(text) > MaxBytes {
		return nil, &logbook.LimitError{Field: "topology", Limit: MaxBytes, Size: int64(len(text)), Unit: "bytes"}
	}
	var file struct {
		Default  string             `toml:"default"`
		Clusters map[string]Cluster `toml:"clusters"`
		Boards   map[string]any     `toml:"boards"`
	}
	meta, err := toml.NewDecoder(bytes.NewReader(text)).Decode(&file)
	if err != nil {
		return nil, fmt.Errorf("the topology is not TOML of the expected form: %w", err)
	}
	t := &Topology{Default: file.Default, Clusters: map[string]Cluster{}, Boards: map[string][]string{}}
	var faults []error
	for _, key := range meta.Undecoded() {
		faults = append(faults, invalid(key.String(), "unknown key: the keys are default, boards, and clusters.NAME with id, servers and srv"))
	}
	for name, cluster := range file.Clusters {
		cluster.ID = cmp.Or(cluster.ID, name)
		t.Clusters[name] = cluster
	}
	for _, rule := range slices.Sorted(maps.Keys(file.Boards)) {
		clusters, ok := namesOf(file.Boards[rule])
		if !ok {
			faults = append(faults, invalid(ruleField(rule), "neither the name of a cluster nor a list of names"))
			continue
		}
		t.Boards[rule] = clusters
	}
	if err := errors.Join(append(faults, t.faults()...)...); err != nil {
		return nil, err
	}
	canonical, err := json.Marshal(t) // with sorted keys
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(canonical)
	t.digest = hex.EncodeToString(sum[:8])
	return t, nil
}

// namesOf reads a name, or a list of names.
func namesOf(value any) (names []string, ok bool) {
	if name, one := value.(string); one {
		return []string{name}, true
	}
	list, ok := value.([]any)
	for _, item := range list {
		name, text := item.(string)
		names, ok = append(names, name), ok && text
	}
	return names, ok
}

func invalid(field, format string, args ...any) error {
	return &logbook.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func ruleField(rule string) string { return fmt.Sprintf("boards.%.300q", rule) }

// faults are all faults of the file.
func (t *Topology) faults() (faults []error) {
	switch _, known := t.Clusters[t.Default]; {
	case t.Default == "":
		faults = append(faults, invalid("default", "missing: set the cluster of all boards without a rule"))
	case !known:
		faults = append(faults, invalid("default", "there is no cluster %.64q", t.Default))
	}
	for _, limit := range []struct {
		field       string
		limit, size int
	}{{"clusters", MaxClusters, len(t.Clusters)}, {"boards", MaxRules, len(t.Boards)}} {
		if limit.size > limit.limit {
			faults = append(faults, &logbook.LimitError{Field: limit.field, Limit: int64(limit.limit), Size: int64(limit.size), Unit: limit.field})
		}
	}
	users := map[string]string{} // of ids and servers: the cluster
	for _, name := range slices.Sorted(maps.Keys(t.Clusters)) {
		faults = append(faults, t.Clusters[name].faults(name, users)...)
	}
	for _, rule := range slices.Sorted(maps.Keys(t.Boards)) {
		faults = append(faults, t.ruleFaults(rule)...)
	}
	return faults
}

func (c Cluster) faults(name string, users map[string]string) (faults []error) {
	field := "clusters." + name
	fault := func(err error) {
		if err != nil {
			faults = append(faults, err)
		}
	}
	fault(logbook.MaxLimits.CheckName(field, name))
	fault(logbook.MaxLimits.CheckName(field+".id", c.ID))
	switch {
	case len(c.Servers) == 0 && c.SRV == "":
		fault(invalid(field, "has no servers: set servers or srv"))
	case len(c.Servers) > 0 && c.SRV != "":
		fault(invalid(field, "has both servers and srv: set only one"))
	case len(c.Servers) > MaxServers:
		fault(&logbook.LimitError{Field: field + ".servers", Limit: MaxServers, Size: int64(len(c.Servers)), Unit: "servers"})
	}
	if len(c.SRV) > 253 || strings.ContainsAny(c.SRV, " \t/:") {
		fault(invalid(field+".srv", "%.64q is not a DNS name", c.SRV))
	}
	for _, server := range c.Servers {
		_, address, found := strings.Cut(server, "://")
		if !found {
			address = server
		}
		host, port, err := net.SplitHostPort(address)
		if number, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || number == 0 || host == "" || strings.ContainsAny(host, " \t/") {
			fault(invalid(field+".servers", "%.128q is not HOST:PORT", server))
		}
	}
	for _, used := range append([]string{"id " + c.ID}, c.Servers...) {
		if other, taken := users[used]; taken {
			fault(invalid(field, "%s also belongs to %s", used, other))
		}
		users[used] = field
	}
	return faults
}

func (t *Topology) ruleFaults(rule string) (faults []error) {
	field, clusters := ruleField(rule), t.Boards[rule]
	prefix, spreads := strings.CutSuffix(rule, "*")
	if rule == "*" {
		return []error{invalid(field, "use the key default for all other boards")}
	}
	if err := logbook.MaxLimits.CheckName(field, rule); err != nil {
		faults = append(faults, err)
	}
	switch {
	case strings.Contains(prefix, "*"):
		faults = append(faults, invalid(field, "a * is allowed only at the end"))
	case len(clusters) == 0:
		faults = append(faults, invalid(field, "has no cluster: add the name of a cluster"))
	case len(clusters) > 1 && !spreads:
		faults = append(faults, invalid(field, "has several clusters: a board is in one cluster, and only a prefix can have several"))
	}
	for i, name := range clusters {
		if _, known := t.Clusters[name]; !known {
			faults = append(faults, invalid(field, "there is no cluster %.64q", name))
		}
		if slices.Contains(clusters[:i], name) {
			faults = append(faults, invalid(field, "names cluster %.64q twice", name))
		}
	}
	return faults
}

// Digest is equal for two files if and only if they have the same meaning: 16 hexadecimal
// digits.
func (t *Topology) Digest() string { return t.digest }

// Route finds the cluster of a board; an empty name is the default board's.
func (t *Topology) Route(board string) Route {
	board = cmp.Or(board, jobs.DefaultBoard)
	if clusters, exact := t.Boards[board]; exact {
		return Route{clusters[0], board}
	}
	for end := len(board); end > 0; end-- { // the longest prefix first
		if clusters, found := t.Boards[board[:end]+"*"]; found {
			return Route{Spread(clusters, board), board[:end] + "*"}
		}
	}
	return Route{Cluster: t.Default}
}

// Spread picks one of several clusters for a board by rendezvous hashing: the cluster with the
// highest score or, at equal scores, the first name in sort order. The score is the first 8
// bytes, as a big-endian number, of the SHA-256 of the cluster's name, a zero byte and the
// board's name. An added cluster therefore takes boards from the others and moves none between
// them, whatever the order of the list.
func Spread(clusters []string, board string) (best string) {
	var highest uint64
	for _, name := range clusters {
		sum := sha256.Sum256([]byte(name + "\x00" + board))
		score := binary.BigEndian.Uint64(sum[:8])
		if best == "" || score > highest || score == highest && name < best {
			best, highest = name, score
		}
	}
	return best
}

// NameOf finds the name of the cluster with an id.
func (t *Topology) NameOf(id string) (name string, found bool) {
	for name, cluster := range t.Clusters {
		if cluster.ID == id {
			return name, true
		}
	}
	return "", false
}
