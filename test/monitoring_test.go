package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
)

const (
	rulesFile     = "../deploy/prometheus/conductord.rules.yml"
	dashboardFile = "../deploy/grafana/conductord.json"
)

var (
	alertOfRule   = regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)
	exprOfRule    = regexp.MustCompile(`(?m)^ +expr: '(.+)'$`)
	forOfRule     = regexp.MustCompile(`(?m)^( +for): \w+$`)
	commandOfRule = regexp.MustCompile("`conductord ([^`]+)`")
	metricOfExpr  = regexp.MustCompile(`\b(?:conductord|go|process)_\w+`)
	seriesOfKind  = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// panel is the part of a dashboard panel that a test reads.
type panel struct {
	ID                       int
	Type, Title, Description string
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct {
		Expr       string
		Datasource struct{ UID string }
	}
}

func dashboardPanels(t *testing.T) []panel {
	t.Helper()
	var dashboard struct {
		SchemaVersion int
		Panels        []panel
		Templating    struct{ List []struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(fileText(t, dashboardFile)), &dashboard); err != nil {
		t.Fatal(err)
	}
	if names := fmt.Sprint(dashboard.Templating.List); names != "[{datasource} {cluster} {board}]" || dashboard.SchemaVersion < 39 {
		t.Errorf("the variables are %s, the schema version is %d", names, dashboard.SchemaVersion)
	}
	return dashboard.Panels
}

func fileText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestMonitoringIsOfThisProgram checks that dashboard and alerts ask for metrics that a server
// has, that each panel explains itself, and that each alert names commands that there are.
func TestMonitoringIsOfThisProgram(t *testing.T) {
	t.Parallel()
	text, err := get(t, "http://"+startDev(t)+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	exists := func(where, expr string) {
		names := metricOfExpr.FindAllString(expr, -1)
		for _, name := range names {
			family := name
			if strings.Contains(text, "# TYPE "+seriesOfKind.ReplaceAllString(name, "")+" histogram\n") {
				family = seriesOfKind.ReplaceAllString(name, "")
			}
			if !strings.Contains(text, "# TYPE "+family+" ") {
				t.Errorf("%s asks for %s, which a server does not have", where, name)
			}
		}
		if len(names) == 0 && !strings.Contains(expr, "up{") {
			t.Errorf("%s asks for nothing: %s", where, expr)
		}
	}
	ids := map[int]bool{}
	for _, p := range dashboardPanels(t) {
		if ids[p.ID] || p.Type != "row" && (p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0) {
			t.Errorf("panel %d, %q: its id is taken, or it lacks a title, a description, a unit or a query", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			exists("panel "+p.Title, target.Expr)
			if target.Datasource.UID != "${datasource}" {
				t.Errorf("panel %s asks %q", p.Title, target.Datasource.UID)
			}
		}
	}
	rules := fileText(t, rulesFile)
	alerts := alertOfRule.FindAllStringSubmatch(rules, -1)
	exprs, tests, listed := exprOfRule.FindAllStringSubmatch(rules, -1), fileText(t, strings.Replace(rulesFile, ".yml", ".test.yml", 1)), documents(t)["docs/metrics.md"]
	if len(alerts) == 0 || len(exprs) != len(alerts) {
		t.Fatalf("%d alerts have %d expressions", len(alerts), len(exprs))
	}
	for i, alert := range alerts {
		exists("alert "+alert[1], exprs[i][1])
		for _, want := range []string{alert[1] + " fires\n", alert[1] + " is silent\n"} {
			if !strings.Contains(tests, "name: "+want) {
				t.Errorf("no test says that %s", want)
			}
		}
		if !strings.Contains(listed, "`"+alert[1]+"`") {
			t.Errorf("docs/metrics.md does not list %s", alert[1])
		}
	}
	for _, command := range commandOfRule.FindAllStringSubmatch(rules, -1) {
		var words []string
		for _, word := range strings.Fields(command[1]) {
			if strings.HasPrefix(word, "-") || strings.ToLower(word) != word {
				break
			}
			words = append(words, word)
		}
		help, err := exec.Command(binary, append(words, "--help")...).CombinedOutput()
		if err != nil || !bytes.Contains(help, []byte("conductord "+strings.Join(words, " ")+" ")) {
			t.Errorf("there is no command %q: %v", command[1], err)
		}
	}
}

// TestPrometheusWatchesACluster lets Prometheus scrape three nodes with the files of
// deploy/prometheus. No rule and no dashboard query may fail. When a node is killed, the alert
// for a member that is down must fire for that node only.
func TestPrometheusWatchesACluster(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s: apt-get install prometheus", program)
		}
	}
	promtool(t, "", "check", "config", "../deploy/prometheus/prometheus.yml")
	promtool(t, "", "test", "rules", strings.Replace(rulesFile, ".yml", ".test.yml", 1))
	cluster, client := startCluster(t, nil)
	if _, err := jobs.PostOne(t.Context(), client, jobs.Posting{Name: "plain", Kind: "plain"}); err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, node := range cluster.Nodes {
		targets = append(targets, node.API)
		text, err := get(t, "http://"+node.API+"/metrics")
		if err != nil {
			t.Fatal(err)
		}
		if said := promtool(t, text, "check", "metrics"); said != "" {
			t.Errorf("%s: %s", node.Name, said)
		}
	}
	p := startPrometheus(t, targets)
	eventually(t, "all targets are up and all rules were evaluated", func() bool {
		return len(p.query(t, `up{job="conductord"} == 1`)) == 3 && p.rules(t).evaluated
	})
	for _, panel := range dashboardPanels(t) {
		for _, target := range panel.Targets {
			p.query(t, strings.NewReplacer("$cluster", "main", "$board", ".*", "$__rate_interval", "10s").Replace(target.Expr))
		}
	}
	leader := leaderOf(t, cluster, client)
	victim := cluster.Nodes[0]
	if victim == leader {
		victim = cluster.Nodes[1]
	}
	if firing := p.rules(t).firing["ConductordMemberDown"]; len(firing) > 0 {
		t.Errorf("%v are down while all run", firing)
	}
	victim.Kill()
	var now ruleStates
	eventually(t, "the alert for a member that is down fires", func() bool {
		now = p.rules(t)
		return len(now.firing["ConductordMemberDown"]) > 0
	})
	if got := fmt.Sprint(now.firing["ConductordMemberDown"]); got != fmt.Sprint([]string{victim.API}) {
		t.Errorf("%s was killed, and the alert is for %s", victim.API, got)
	}
	if len(now.firing["ConductordNoLeader"]) > 0 {
		t.Error("the alert for a missing leader fires while there is one")
	}
}

// promtool runs promtool, which must succeed, and returns its output.
func promtool(t *testing.T, input string, arguments ...string) string {
	t.Helper()
	command := exec.Command("promtool", arguments...)
	command.Stdin = strings.NewReader(input)
	said, err := command.CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, said)
	}
	return string(said)
}

// prometheus is one that runs.
type prometheus struct{ address string }

// startPrometheus runs one with the files of deploy/prometheus, but these targets, and as fast as it can.
func startPrometheus(t *testing.T, targets []string) prometheus {
	t.Helper()
	dir, address := t.TempDir(), freeAddress(t)
	configuration := fileText(t, "../deploy/prometheus/prometheus.yml")
	for _, change := range [][2]string{
		{"10.0.0.1:7070, 10.0.0.2:7070, 10.0.0.3:7070", strings.Join(targets, ", ")}, {"scrape_interval: 15s", "scrape_interval: 1s"}, {"evaluation_interval: 15s", "evaluation_interval: 1s"},
	} {
		if !strings.Contains(configuration, change[0]) {
			t.Fatalf("prometheus.yml has no %q", change[0])
		}
		configuration = strings.Replace(configuration, change[0], change[1], 1)
	}
	for name, text := range map[string]string{
		"prometheus.yml": configuration, "conductord.rules.yml": forOfRule.ReplaceAllString(fileText(t, rulesFile), "$1: 1s"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var said bytes.Buffer
	command := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	command.Stdout, command.Stderr = &said, &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Logf("prometheus said:\n%s", said.String())
		}
	})
	eventually(t, "Prometheus serves", func() bool { _, err := get(t, "http://"+address+"/-/ready"); return err == nil })
	return prometheus{address}
}

// query returns the series of an expression, which must be understood.
func (p prometheus) query(t *testing.T, expr string) (series []json.RawMessage) {
	t.Helper()
	var answer struct {
		Status string
		Data   struct{ Result []json.RawMessage }
	}
	p.ask(t, "query?query="+url.QueryEscape(expr), &answer)
	if answer.Status != "success" {
		t.Errorf("Prometheus cannot evaluate %s", expr)
	}
	return answer.Data.Result
}

func (p prometheus) ask(t *testing.T, path string, answer any) {
	t.Helper()
	text, err := get(t, "http://"+p.address+"/api/v1/"+path)
	if err == nil {
		err = json.Unmarshal([]byte(text), answer)
	}
	if err != nil {
		t.Fatalf("cannot ask Prometheus for %s: %v", path, err)
	}
}

// ruleStates are the alerts: whether all were evaluated, and the instances for which each fires.
type ruleStates struct {
	evaluated bool
	firing    map[string][]string
}

// rules reads the rules. All of them must be healthy.
func (p prometheus) rules(t *testing.T) ruleStates {
	t.Helper()
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct {
					Name, Health, LastError string
					Alerts                  []struct {
						State  string
						Labels map[string]string
					}
				}
			}
		}
	}
	p.ask(t, "rules", &answer)
	now := ruleStates{evaluated: len(answer.Data.Groups) > 0, firing: map[string][]string{}}
	for _, group := range answer.Data.Groups {
		for _, rule := range group.Rules {
			now.evaluated = now.evaluated && rule.Health == "ok"
			if rule.LastError != "" {
				t.Errorf("%s: %s", rule.Name, rule.LastError)
			}
			for _, alert := range rule.Alerts {
				if alert.State == "firing" {
					now.firing[rule.Name] = append(now.firing[rule.Name], alert.Labels["instance"])
				}
			}
		}
	}
	return now
}
