package test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

const modulePath = "github.com/conductord/conductord"

// floors is the order of the packages: imports only go down. A package that is not listed is on its
// parent's floor.
var floors = map[string]int{
	"logbook": 0, "config": 0, "api": 0, "docs": 0, "internal": 0,
	"jobs": 1, "flow": 1, "valuekeys": 1, "topology": 1,
	"fsm/command": 2, "flow/engine": 2, "flow/handler": 2, "flow/spec": 2,
	"fsm": 3, "raftboard": 3, "conductor": 3,
	"raftboard/node": 4,
	"cmd":            5, "test": 5, "examples": 5, "deploy": 5,
}

// rooms is the order of the packages below raftboard/node, like floors. raftboard/node itself,
// which connects them, is above them all.
var rooms = map[string]int{
	"raftboard/node/raftlog/logstore": 0, "raftboard/node/raftlog/transport": 0, "raftboard/node/backup": 0, "raftboard/node/replication": 0,
	"raftboard/node/raftlog": 1, "raftboard/node/memorylog": 1, "raftboard/node/sums": 1,
	"raftboard/node/admission": 1, "raftboard/node/deadlines": 0, "raftboard/node/clock": 1, "raftboard/node/offers": 1, "raftboard/node/proposer": 1,
	"raftboard/node/guard": 2, "raftboard/node/polls": 2, "raftboard/node/raftlog/membership": 2,
	"raftboard/node/replication/replicationtest": 1,
	"raftboard/node/lead":                        3, "raftboard/node/api": 4, "raftboard/node/cluster": 5, "raftboard/node/boardtest": 5,
	"raftboard/node":          6,
	"raftboard/node/nodetest": 7,
}

// nouns is the order of the packages below cmd/conductord/cli, like rooms: a noun imports only
// packages below it. cli itself is below them all; package commands, which adds them to the root,
// is above.
var nouns = map[string]int{
	"cmd/conductord/cli": 0, "cmd/conductord/cli/bench/workload": 0,
	"cmd/conductord/cli/document": 1, "cmd/conductord/cli/tree": 1,
	"cmd/conductord/cli/access": 1, "cmd/conductord/cli/bench": 1, "cmd/conductord/cli/cluster": 1,
	"cmd/conductord/cli/job":   2,
	"cmd/conductord/cli/board": 3, "cmd/conductord/cli/conductor": 3, "cmd/conductord/cli/flow": 3, "cmd/conductord/cli/schedule": 3,
	"cmd/conductord/cli/clitest": 4,
}

// knowRaft are the packages that import hashicorp/raft: raftlog and what
// is below it. Another log must change nothing above the seam.
var knowRaft = []string{"raftboard/node/raftlog", "raftboard/node/raftlog/logstore", "raftboard/node/raftlog/membership", "raftboard/node/raftlog/transport"}

// forbidden are imports that the floors would allow, but the design does not.
var forbidden = []struct {
	importer string // including packages below it
	imported string // a prefix; our own packages are without the module's path
	why      string
}{
	{"conductor", "raftboard", "a conductor works on any board"},
	{"conductor", "fsm", "a conductor works on any board"},
	{"raftboard", "fsm", "a client program never links bbolt"},
	{"flow", "jobs", "flow authors see only flow"},
	{"flow", "fsm", "flow authors see only flow"},
	{"flow", "raftboard", "flow authors see only flow"},
}

// allowed are the exceptions to forbidden.
var allowed = map[[2]string]bool{
	{"raftboard", "fsm/command"}:                                  true, // only the vocabulary
	{"raftboard/wire", "fsm/command"}:                             true,
	{"raftboard/node", "fsm"}:                                     true, // the daemon's half
	{"raftboard/node", "fsm/command"}:                             true,
	{"raftboard/node/admission", "fsm"}:                           true,
	{"raftboard/node/guard", "fsm"}:                               true,
	{"raftboard/node/guard", "fsm/command"}:                       true,
	{"raftboard/node/backup", "fsm"}:                              true,
	{"raftboard/node/raftlog/membership", "fsm"}:                  true,
	{"raftboard/node/raftlog/membership", "fsm/command"}:          true,
	{"raftboard/node/sums", "fsm"}:                                true,
	{"raftboard/node/sums", "fsm/command"}:                        true,
	{"raftboard/node/memorylog", "fsm"}:                           true,
	{"raftboard/node/raftlog", "fsm"}:                             true,
	{"raftboard/node/replication", "fsm"}:                         true,
	{"raftboard/node/replication/replicationtest", "fsm"}:         true,
	{"raftboard/node/replication/replicationtest", "fsm/command"}: true,
	{"raftboard/node/api", "fsm"}:                                 true,
	{"raftboard/node/api", "fsm/command"}:                         true,
	{"raftboard/node/boardtest", "fsm"}:                           true,
	{"raftboard/node/boardtest", "fsm/command"}:                   true,
	{"raftboard/node/cluster", "fsm"}:                             true,
	{"raftboard/node/cluster", "fsm/command"}:                     true,
	{"raftboard/node/lead", "fsm"}:                                true,
	{"raftboard/node/lead", "fsm/command"}:                        true,
	{"raftboard/node/polls", "fsm"}:                               true,
	{"raftboard/node/polls", "fsm/command"}:                       true,
	{"raftboard/node/proposer", "fsm/command"}:                    true,
}

type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

// packagesAsJSON asks go once for all packages.
var packagesAsJSON = sync.OnceValues(func() ([]byte, error) {
	return exec.Command("go", "list", "-json=ImportPath,Imports,Deps", modulePath+"/...").Output()
})

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	output, err := packagesAsJSON()
	if err != nil {
		t.Fatalf("cannot list the packages: %v", err)
	}
	var packages []goPackage
	decoder := json.NewDecoder(strings.NewReader(string(output)))
	for {
		var one goPackage
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, one)
	}
}

func short(path string) string { return strings.TrimPrefix(path, modulePath+"/") }

func ours(path string) bool { return strings.HasPrefix(path, modulePath+"/") }

// floorOf finds the floor of a package, or of the nearest folder above it.
func floorOf(name string) (int, bool) {
	for {
		if floor, ok := floors[name]; ok {
			return floor, true
		}
		slash := strings.LastIndex(name, "/")
		if slash < 0 {
			return 0, false
		}
		name = name[:slash]
	}
}

// TestFloors checks which packages each package imports.
func TestFloors(t *testing.T) {
	t.Parallel()
	packages := listPackages(t)
	if len(packages) < len(floors) {
		t.Fatalf("found only %d packages", len(packages))
	}
	for _, importer := range packages {
		name := short(importer.ImportPath)
		floor, ok := floorOf(name)
		if !ok {
			t.Errorf("package %s is on no floor", name)
			continue
		}
		for _, path := range importer.Imports {
			if !ours(path) {
				continue
			}
			imported := short(path)
			beneath, _ := floorOf(imported)
			if room, listed := rooms[name]; below(name, "raftboard/node") && (!listed || rooms[imported] > room || rooms[imported] == room && below(imported, "raftboard/node")) {
				t.Errorf("%s imports %s: neither is above the other in rooms", name, imported)
			}
			if room, listed := nouns[name]; below(name, "cmd/conductord/cli") && (!listed || below(imported, "cmd/conductord/cli") && nouns[imported] >= room) {
				t.Errorf("%s imports %s: neither is above the other in nouns", name, imported)
			}
			if room := nouns[name]; below(name, "cmd/conductord/cli") && below(imported, "cmd/conductord") && !below(imported, "cmd/conductord/cli") && room < nouns["cmd/conductord/cli/clitest"] {
				t.Errorf("%s imports %s, which is above the nouns", name, imported)
			}
			if beneath > floor {
				t.Errorf("%s (floor %d) imports %s (floor %d)", name, floor, imported, beneath)
			}
			if imported == "config" && floor < 5 {
				t.Errorf("%s imports config: nothing below the commands sees it", name)
			}
			for _, rule := range forbidden {
				if below(name, rule.importer) && below(imported, rule.imported) && !allowed[[2]string{name, imported}] {
					t.Errorf("%s imports %s: %s", name, imported, rule.why)
				}
			}
		}
	}
}

// TestRaftIsBelowTheSeam checks which packages know hashicorp/raft.
func TestRaftIsBelowTheSeam(t *testing.T) {
	t.Parallel()
	var know []string
	for _, one := range listPackages(t) {
		if name := short(one.ImportPath); slices.Contains(one.Imports, "github.com/hashicorp/raft") {
			know = append(know, name)
		}
	}
	if slices.Sort(know); !slices.Equal(know, knowRaft) {
		t.Errorf("hashicorp/raft is imported by %q, and only %q may", know, knowRaft)
	}
}

func below(name, folder string) bool { return name == folder || strings.HasPrefix(name, folder+"/") }

// TestClientsLinkNoStorage checks that a program with the client library, or a
// conductor, links neither raft nor bbolt, and no exporter of traces.
func TestClientsLinkNoStorage(t *testing.T) {
	t.Parallel()
	for _, one := range listPackages(t) {
		name := short(one.ImportPath)
		if !slices.Contains([]string{"raftboard", "conductor", "flow", "flow/engine", "examples/worker", "examples/post", "examples/email/worker", "examples/email/post", "examples/languages"}, name) {
			continue
		}
		for _, dependency := range one.Deps {
			if strings.HasPrefix(dependency, "github.com/hashicorp/raft") || strings.HasPrefix(dependency, "go.etcd.io/bbolt") {
				t.Errorf("%s links %s", name, dependency)
			}
			if strings.HasPrefix(dependency, "go.opentelemetry.io/otel/sdk") || strings.HasPrefix(dependency, "go.opentelemetry.io/otel/exporters") {
				t.Errorf("%s links %s, and may link the API of OpenTelemetry only", name, dependency)
			}
		}
	}
}
