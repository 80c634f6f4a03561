package spec

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/internal/meant"
	"github.com/conductord/conductord/internal/tomlpos"
	"github.com/conductord/conductord/logbook"
)

// Parse reads a document and checks it by itself. Compile reports faults of the flow as a whole,
// such as a missing requirement. The name is the name of the file, for messages. Its extension
// distinguishes TOML (.toml) from JSON (.json); without either, the first character does.
//
// All faults are reported at once, in a *FaultError, which is a logbook.ErrInvalid. If the
// document exceeds a limit, the error is logbook.ErrLimit.
func Parse(data []byte, name string) (*Document, error) {
	f := &faults{source: name}
	values, err := decode(data, f)
	if err != nil {
		return nil, err
	}
	r := &reader{faults: f, named: map[string]tomlpos.Position{}}
	document := r.document(newTable(f, "", "", values))
	if most := logbook.MaxLimits.Steps; r.steps > most {
		return nil, fmt.Errorf("cannot use the document: %w", &logbook.LimitError{Field: name, Limit: int64(most), Size: int64(r.steps), Unit: "steps"})
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	document.source, document.places = name, r.named
	if err := document.expand(f); err != nil {
		return nil, err
	}
	if _, taken := r.named[document.Name]; !taken {
		r.named[document.Name] = f.index.Of("name") // for messages; a step may have the same name
	}
	if err := logbook.MaxLimits.CheckValue("the JSON form of "+name, document.JSON()); err != nil {
		return nil, fmt.Errorf("cannot use the document: %w", err)
	}
	return document, nil
}

func (r *reader) document(t *table) *Document {
	d := &Document{
		Name:        r.name(t, "name"),
		Description: t.text("description"),
		Pattern:     r.pattern(t),
		Inputs:      t.texts("inputs"),
		Store:       r.store(t, "store"),
	}
	for _, input := range d.Inputs {
		r.checkSymbol(t, "inputs", input)
		if _, both := d.Store[input]; both {
			t.fault("inputs", "%q has a default in store, so it is not an input: remove it here", input)
		}
	}
	d.Retry = r.rounds(t, d.Name)
	d.Timeout, d.Deadline, d.Job = t.duration("timeout"), t.duration("deadline"), r.job(t)
	d.Targets = t.texts("targets")
	d.OnChange = logbook.ChangePolicy(t.choice("on_change", []string{
		string(logbook.ChangeAdopt), string(logbook.ChangePin), string(logbook.ChangeRefuse),
	}))
	d.OnTakeover, d.OnFailure = takeover(t), onFailure(t)
	r.inputs = d.Symbols()
	r.flows = r.parts(t)
	d.Flows = r.flows
	d.Steps, d.Late = r.stepsOf(t, d.Pattern), r.lateOf(t)
	t.rest()
	for _, check := range r.later {
		check()
	}
	return d
}

func takeover(t *table) flow.TakeoverPolicy {
	return flow.TakeoverPolicy(t.choice("on_takeover", []string{string(flow.TakeoverContinue), string(flow.UndoLast)}))
}

func onFailure(t *table) flow.FailurePolicy {
	return flow.FailurePolicy(t.choice("on_failure", []string{string(flow.RevertOnFailure), string(flow.HoldOnFailure)}))
}

// stepsOf reads the steps of the document or of a flow within it.
func (r *reader) stepsOf(t *table, pattern Pattern) []Step {
	tables := t.tables("steps")
	if len(tables) == 0 && !t.failed("steps") {
		t.fault("steps", "missing; a flow has at least one step")
	}
	if r.steps += len(tables); r.steps > logbook.MaxLimits.Steps {
		return nil // which Parse reports: entries beyond its limit are not read
	}
	var steps []Step
	var places []*table
	here := &level{around: r.level}
	r.level = here
	defer func() { r.level = here.around }()
	for i, values := range tables {
		where := fmt.Sprintf("step %d", i+1)
		if name, ok := values["name"].(string); ok && name != "" {
			where = "step " + quoted(name)
		} else if t.where != "" {
			where = t.where + ", " + where
		}
		place := newTable(r.faults, fmt.Sprintf("%s[%d]", t.pathOf("steps"), i), where, values)
		steps = append(steps, r.step(place))
		places = append(places, place)
	}
	r.checkAfter(steps, places, pattern)
	here.steps = steps
	r.later = append(r.later, func() { r.checkConditions(here, places, pattern) })
	return steps
}

func (r *reader) step(t *table) Step {
	s := Step{
		Name:        r.name(t, "name"),
		Description: t.text("description"),
		After:       t.texts("after"),
		When:        r.conditions(t),
	}
	r.claim(t, "name", s.Name)
	switch {
	case t.has("flow"):
		r.use(t, &s)
	case t.has("steps"):
		s.Each = r.each(t)
		s.Pattern = r.pattern(t)
		s.Rounds = r.rounds(t, s.Name)
		if s.Enough = t.integer("enough", 1, flow.MaxElements); s.Each != nil && t.has("enough") {
			t.fault("enough", "the step has each: write each = {…, enough = %d}, or put a flow with enough inside", s.Enough)
		}
		s.OnTakeover, s.OnFailure = takeover(t), onFailure(t)
		s.Steps, s.Late = r.stepsOf(t, s.Pattern), r.lateOf(t)
	case t.has("wait"), t.has("sleep"), t.has("approve"):
		r.waiting(t, &s)
	case t.has("again"):
		r.again(t, &s)
	default:
		r.work(t, &s)
	}
	t.elsewhere = elsewhere(t)
	t.rest()
	return s
}

// elsewhere maps keys that belong to another kind of step to that kind: the message "unknown"
// alone would mislead.
func elsewhere(t *table) map[string]string {
	shape, keys := "", map[string]string{}
	switch {
	case t.has("flow"):
		shape = "the use of a part, since it has flow; the steps of the part"
		keys["enough"] = "it belongs to the part, or to each"
		keys["finally"], keys["on_error"] = "it belongs to the part", "it belongs to the part"
	case t.has("steps"):
		shape = "a flow within the flow, since it has steps; its steps"
	case t.has("wait"), t.has("sleep"), t.has("approve"):
		for _, key := range []string{"handler", "revert", "worker", "requires", "optional", "inject", "argv", "timeout", "deadline", "at_most_once", "point_of_no_return", "uninterruptible", "repeatable", "wait_at_most", "concurrency", "send"} {
			keys[key] = "this step waits, since it has wait, sleep or approve, and runs no handler"
		}
		return keys
	case t.has("again"):
		for _, key := range []string{"handler", "revert", "worker", "provides", "inject", "argv", "timeout", "deadline", "retry", "at_most_once", "point_of_no_return", "uninterruptible", "repeatable", "wait_at_most", "concurrency", "send", "on_failure", "default"} {
			keys[key] = "this step continues the job, since it has again, and runs no handler"
		}
		return keys
	default:
		const here = "it belongs to a flow within the flow, which has steps"
		return map[string]string{"pattern": here, "on_takeover": here, "finally": here + ", or to the document", "on_error": here + ", or to the document", "enough": here + ", or to each", "each": here + ", or to the use of a part, which has flow", "with": "it belongs to the use of a part, which has flow"}
	}
	for _, key := range []string{
		"handler", "revert", "worker", "worker_labels", "no_worker_timeout", "same_worker_as", "requires", "optional", "inject", "argv", "provides", "timeout", "deadline", "at_most_once", "point_of_no_return", "uninterruptible", "repeatable", "wait_at_most", "concurrency", "send", "priority", "version", "default",
	} {
		keys[key] = "this is " + shape + " have that"
	}
	return keys
}

// work reads the keys that only steps have, and not nested flows.
func (r *reader) work(t *table, s *Step) {
	s.Handler = r.handler(t, "handler", s.Name)
	if s.late == "" {
		r.notLate(t, s)
	}
	r.worker(t, s)
	s.Requires = r.arguments(t, "requires")
	s.Optional = r.arguments(t, "optional")
	for _, argument := range slices.Sorted(maps.Keys(s.Optional)) {
		if _, both := s.Requires[argument]; both {
			t.fault("optional", "%s is already in requires", quoted(argument))
		}
	}
	s.Inject = r.injected(t, s)
	s.Argv = r.argv(t, s)
	s.Provides = r.provides(t)
	s.Timeout = t.duration("timeout")
	s.Deadline = t.deadline("deadline")
	s.Retry = r.retry(t)
	s.Uninterruptible = t.truth("uninterruptible")
	if s.AtMostOnce && s.Retry != nil && s.Retry.Attempts > 1 {
		t.fault("retry", "a step with at_most_once cannot have a retry")
	}
	s.WaitAtMost = t.duration("wait_at_most")
	s.Concurrency = r.concurrency(t, s)
	s.Send = r.sends(t, s)
	for _, label := range s.WorkerLabels {
		s.checkTemplate(t, "worker_labels", label)
	}
	s.Priority = t.integer("priority", -flow.MaxPriority, flow.MaxPriority)
	if t.has("default") {
		s.Default = r.json(t, "default", t.values["default"])
	}
	if s.Version = t.text("version"); s.Version != "" {
		r.checkSymbol(t, "version", s.Version)
	}
}

// notLate reads the keys that on_error and finally steps cannot have.
func (r *reader) notLate(t *table, s *Step) {
	s.Revert = r.handler(t, "revert", "")
	s.AtMostOnce = t.truth("at_most_once")
	s.PointOfNoReturn = t.truth("point_of_no_return")
	s.Repeatable = t.truth("repeatable")
	r.ignored(t, s)
	if s.SameWorkerAs = t.text("same_worker_as"); t.has("same_worker_as") && !t.failed("same_worker_as") {
		r.checkSymbol(t, "same_worker_as", s.SameWorkerAs)
	}
}

// ignored reads the failure policy of a step.
func (r *reader) ignored(t *table, s *Step) {
	switch policy := t.text("on_failure"); policy {
	case "", string(ignoreFailure):
		s.OnFailure = flow.FailurePolicy(policy)
	case string(flow.RevertOnFailure), string(flow.HoldOnFailure):
		t.fault("on_failure", "only a flow can have %s; a step can have only ignore", quoted(policy))
	default:
		t.fault("on_failure", "%s is not ignore%s", quoted(policy), meant.Hint(policy, []string{string(ignoreFailure)}))
	}
	if t.has("default") && s.OnFailure == "" && !t.failed("on_failure") {
		t.fault("default", "this key requires on_failure = \"ignore\"")
	}
}

// worker reads the keys of a step about workers.
func (r *reader) worker(t *table, s *Step) {
	s.Worker = t.truth("worker")
	s.WorkerLabels = t.texts("worker_labels")
	s.NoWorkerTimeout = t.duration("no_worker_timeout")
	if len(s.WorkerLabels) > maxWorkerLabels {
		t.fault("worker_labels", "it has %d labels; the limit is %d", len(s.WorkerLabels), maxWorkerLabels)
	}
	for _, label := range s.WorkerLabels {
		r.checkSymbol(t, "worker_labels", label)
	}
	for _, key := range []string{"worker_labels", "no_worker_timeout", "same_worker_as"} {
		if t.has(key) && !s.Worker && !t.failed(key) {
			t.fault(key, "only a worker step can have this key: add worker = true")
		}
	}
	if s.Worker && t.has("argv") {
		t.fault("argv", "a worker step cannot have this key: a worker gets the arguments as JSON")
	}
}

// maxWorkerLabels limits the labels that a step can require: far more than anyone needs.
const maxWorkerLabels = 16

func (r *reader) pattern(t *table) Pattern {
	switch pattern := Pattern(t.text("pattern")); pattern {
	case Linear, Unordered, Graph:
		return pattern
	default:
		if t.has("pattern") && !t.failed("pattern") {
			t.fault("pattern", "must be one of linear, unordered, graph, not %s%s", quoted(string(pattern)),
				meant.Hint(string(pattern), []string{string(Linear), string(Unordered), string(Graph)}))
		}
		return Graph
	}
}

// handler reads the name of a handler. Its default is the step's own name, if that is a valid
// name of a handler.
func (r *reader) handler(t *table, key, otherwise string) string {
	name := t.text(key)
	if t.failed(key) {
		return ""
	}
	if !t.has(key) {
		if otherwise == "" {
			return ""
		}
		name = otherwise
	}
	if err := handler.CheckName(name); err != nil {
		reason := reasonOf(err)
		if !t.has(key) {
			reason = "missing, and the step's name cannot be used instead: " + reason
		}
		t.fault(key, "%s", reason)
	}
	return name
}

// injected reads values for this step alone. Their names are arguments, whether or not
// they are also required.
func (r *reader) injected(t *table, s *Step) logbook.Values {
	values := r.store(t, "inject")
	for _, name := range slices.Sorted(maps.Keys(values)) {
		r.checkSymbol(t, "inject", name)
		if strings.HasPrefix(name, "$") {
			t.fault("inject", "%s: names that begin with $ are reserved for the arguments of reverts", quoted(name))
		}
		if symbol, both := s.Requires[name]; both && symbol != name {
			t.fault("inject", "%s already gets %s from requires", quoted(name), quoted(symbol))
		}
	}
	return values
}

func (r *reader) provides(t *table) Provides {
	if !t.has("provides") {
		return Provides{}
	}
	if whole, ok := t.values["provides"].(string); ok {
		r.checkSymbol(t, "provides", whole)
		return Provides{Whole: whole}
	}
	if _, ok := t.values["provides"].(map[string]any); ok {
		return Provides{As: r.renamed(t, "provides")}
	}
	fields := t.texts("provides")
	for _, field := range fields {
		r.checkSymbol(t, "provides", field)
	}
	return Provides{Fields: fields}
}

func (r *reader) retry(t *table) *Backoff {
	inner := t.inner("retry")
	if inner == nil {
		return nil
	}
	retry := r.pause(inner)
	retry.Attempts = inner.integer("attempts", 1, logbook.MaxAttempts)
	if !inner.has("attempts") {
		inner.fault("attempts", "missing: set the maximum of attempts, including the first")
	}
	inner.rest()
	return &retry
}

func (r *reader) pause(t *table) Backoff {
	return Backoff{
		Delay:          t.duration("delay"),
		BackoffPercent: t.integer("backoff_percent", 100, logbook.MaxBackoffPercent),
		MaxDelay:       t.duration("max_delay"),
		JitterPercent:  t.integer("jitter_percent", 0, 100),
		Only:           r.failures(t, "only"),
		Never:          r.failures(t, "never"),
	}
}

// failures reads a list of a logbook.RetryFilter. Exit statuses can be numbers.
func (r *reader) failures(t *table, key string) []string {
	if list, ok := t.values[key].([]any); ok {
		texts := make([]any, len(list))
		for i, item := range list {
			if texts[i] = item; kindOf(item) == "a number" {
				texts[i] = fmt.Sprint(item)
			}
		}
		t.values[key] = texts
	}
	failures := t.texts(key)
	if t.failed(key) || !t.has(key) {
		return failures
	}
	if len(failures) == 0 {
		t.fault(key, "the list is empty: remove it, or list kinds of failure and exit statuses")
	} else if err := logbook.CheckRetryEntries(logbook.MaxLimits, "the list", failures); err != nil {
		t.fault(key, "%v", err)
	}
	return failures
}

func (r *reader) store(t *table, key string) logbook.Values {
	values := t.table(key)
	if len(values) == 0 {
		return nil
	}
	store := make(logbook.Values, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		store[name] = r.json(t, key+"."+name, values[name])
	}
	if err := logbook.MaxLimits.CheckValues("store", store); err != nil {
		t.fault(key, "%v", err)
	}
	return store
}

// unfit is the reason why a value of TOML has no JSON.
func unfit(value any) string {
	switch value := value.(type) {
	case time.Time:
		return "a date or time: write a string, in the form that the handler reads"
	case float64:
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return "not a number that JSON can write"
		}
	case []any:
		for _, inner := range value {
			if reason := unfit(inner); reason != "" {
				return reason
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if reason := unfit(value[name]); reason != "" {
				return reason
			}
		}
	}
	return ""
}

// checkAfter checks the explicit order among the steps of one flow.
func (r *reader) checkAfter(steps []Step, places []*table, pattern Pattern) {
	siblings := make(map[string]bool, len(steps))
	for i := range steps {
		siblings[steps[i].Name] = true
	}
	for i := range steps {
		if len(steps[i].After) > 0 && pattern != Graph {
			places[i].fault("after", "the pattern %s already sets the order of the steps", pattern)
			continue
		}
		for _, name := range steps[i].After {
			switch {
			case name == steps[i].Name:
				places[i].fault("after", "a step cannot come after itself")
			case !siblings[name]:
				places[i].fault("after", "there is no step %s in the same flow%s", quoted(name), meant.Hint(name, slices.Sorted(maps.Keys(siblings))))
			}
		}
	}
}
