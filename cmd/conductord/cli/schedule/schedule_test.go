package schedule_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
)

// TestScheduleCommands runs the verbs in the order of a schedule's life.
func TestScheduleCommands(t *testing.T) {
	cluster := clitest.Open(t)
	for _, row := range []struct {
		args string
		code int
		out  string // stdout with ids and times replaced; empty: not checked
		err  string // part of stderr
	}{
		{"set yearly --rule 0_0_1_1_* --kind k --label gpu --tag big --tag night --key roof --priority high --front --hold --max-crashes 3 --set a=1 --details 7 --deadline 2h", 0, "yearly next TIME\n", ""},
		{"show yearly", 0, `name: yearly
board: default
id: ID
rule: 0 0 1 1 *
zone: UTC
overlap: skip
missed: last=1
posts: kind k, priority high, in front, held
store: a = 1
details: 7
key: roof
tags: big, night
labels: gpu
max crashes: 3
deadline: 2h after the slot
next: TIME
active: 0
waiting: 0
posted: 0
skipped: 0
created: TIME
updated: TIME
`, ""},
		{"next yearly -n 2", 0, "TIME\nTIME\n", ""},
		{"pause yearly --reason rain", 0, "yearly is paused\n", ""},
		{"resume yearly", 0, "yearly next TIME\n", ""},
		{"run yearly", 0, "", ""},
		{"backfill yearly --since 2020-06-01T00:00:00Z --until 2021-06-01T00:00:00Z", 0, "", ""},
		{"backfill yearly", cli.ExitUsage, "", "the start of the range is required: --since"},
		{"backfill yearly --since 2020-06-01T00:00:00Z --until 2020-07-01T00:00:00Z", cli.ExitUsage, "", "no past slot between"},
		{"set yearly --kind k", cli.ExitUsage, "", "the rule is required: --rule"},
		{"set yearly --rule soon --kind k", cli.ExitUsage, "", "schedule rule is invalid"},
		{"set yearly --rule @daily", cli.ExitUsage, "", "name the work of the job"},
		{"set yearly --rule @daily --kind k --missed some", cli.ExitUsage, "", "--missed must be"},
		{"set yearly --rule @daily --kind k --start soon", cli.ExitUsage, "", "--start must be a time"},
		{"set yearly --rule @daily --kind k --priority urgent", cli.ExitUsage, "", "priority is invalid"},
		{"set yearly --rule @daily --kind k --set slot=1", cli.ExitUsage, "", "which every slot sets"},
		{"list", 0, "BOARD NAME RULE ZONE NEXT ACTIVE WAITING POSTED SKIPPED\ndefault yearly 0 0 1 1 * UTC AGO 1 1 1 0\n", ""},
		{"delete yearly", 0, "", ""},
		{"show yearly", cli.ExitNotFound, "", "not found\nconductord: --board names the board of the schedule; `conductord schedule list` lists the schedules of all boards\n"},
	} {
		args := strings.Fields(row.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "_", " ")
		}
		got := clitest.Run(t, cluster, append([]string{"schedule"}, args...)...)
		if row.args == "run yearly" {
			said := clitest.Steady(clitest.Run(t, cluster, "job", "get", regexp.MustCompile(`[0-9a-f]{8}-\S+`).FindString(got.Out)).Out)
			for _, line := range []string{"details: 7", `schedule = "yearly"`, `slot = "TIME"`, "schedule: yearly", "slot: TIME"} {
				if !strings.Contains(said, line+"\n") {
					t.Errorf("the job of a slot lacks %q:\n%s", line, said)
				}
			}
		}
		if got.Code != row.code || row.out != "" && clitest.Steady(got.Out) != row.out || !strings.Contains(got.Err, row.err) {
			t.Errorf("schedule %s: got %+v", row.args, got)
		}
	}
}

// TestScheduleShowsItsPosting: the JSON has every value of the flags.
func TestScheduleShowsItsPosting(t *testing.T) {
	cluster := clitest.Open(t)
	got := clitest.Run(t, cluster, "schedule", "set", "s", "--rule", "@daily", "--flow", clitest.Examples+"hello.toml", "--label", "gpu", "--tag", "night",
		"--key", "roof", "--front", "--hold", "--max-crashes", "3", "--attempts", "3", "-o", "json")
	var shown struct {
		Posting struct {
			Hold, Front  bool
			Key          string
			Tags, Labels []string
			MaxCrashes   int `json:"max_crashes"`
			Retry        struct{ Attempts int }
		}
	}
	if err := json.Unmarshal([]byte(got.Out), &shown); err != nil || got.Code != 0 {
		t.Fatalf("%v: %+v", err, got)
	}
	p := shown.Posting
	if !p.Hold || !p.Front || p.Key != "roof" || len(p.Tags) != 1 || len(p.Labels) != 1 || p.MaxCrashes != 3 || p.Retry.Attempts != 3 {
		t.Errorf("shown %+v of %s", p, got.Out)
	}
	again := clitest.Run(t, cluster, "schedule", "set", "s", "--rule", "@daily", "--flow", clitest.Examples+"hello.toml", "--label", "gpu", "--tag", "night",
		"--key", "roof", "--front", "--hold", "--max-crashes", "3", "--attempts", "3", "-o", "json")
	if again.Out != got.Out {
		t.Errorf("set again: %s\nafter %s", again.Out, got.Out)
	}
}

// TestScheduleSuppliesInputs: a flow can have the values of the slots as inputs. Other inputs need a value.
func TestScheduleSuppliesInputs(t *testing.T) {
	cluster := clitest.Open(t)
	for _, row := range []struct {
		inputs string
		args   []string
		code   int
		err    string
	}{
		{`inputs = ["slot", "schedule"]`, nil, 0, ""},
		{`inputs = ["schedule"]` + "\n" + `store = {slot = "now"}`, nil, 0, ""},
		{`inputs = ["slot", "guest"]`, []string{"--set", "guest=Ada"}, 0, ""},
		{`inputs = ["slot", "guest"]`, nil, cli.ExitUsage, "input guest is invalid"},
		{`inputs = ["slot"]`, []string{"--set", "slot=1"}, cli.ExitUsage, "which every slot sets"},
	} {
		path := filepath.Join(t.TempDir(), "report.toml")
		text := "name = \"report\"\n" + row.inputs + "\n[[steps]]\nname = \"export\"\nrequires = [\"slot\"]\noptional = [\"schedule\", \"guest\"]\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := clitest.Run(t, cluster, append([]string{"schedule", "set", "s", "--rule", "@daily", "--flow", path}, row.args...)...)
		if got.Code != row.code || !strings.Contains(got.Err, row.err) || row.err == "" && got.Err != "" {
			t.Errorf("%s %v: %+v", row.inputs, row.args, got)
		}
	}
}
