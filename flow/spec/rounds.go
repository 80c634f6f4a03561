package spec

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// maxRoundValue is the limit of a flow.Controller's value of a round.
const maxRoundValue = 8 << 10

// modes are the kinds of a flow's retry; exactly one must be set.
var modes = []string{"times", "for_each", "always_revert", "always_revert_all"}

// rounds reads the retry of a flow.
func (r *reader) rounds(t *table, flowName string) *Rounds {
	inner := t.inner("retry")
	if inner == nil {
		return nil
	}
	rounds := &Rounds{
		Name:            inner.text("name"),
		Times:           inner.integer("times", 1, flow.MaxRounds),
		ForEach:         r.list(inner, "for_each"),
		AlwaysRevert:    inner.truth("always_revert"),
		AlwaysRevertAll: inner.truth("always_revert_all"),
		Provides:        inner.text("provides"),
		Backoff:         r.pause(inner),
		Permanent:       inner.choice("permanent", []string{"end", "retry"}),
		RevertingAll:    inner.truth("reverting_all"),
		Version:         inner.text("version"),
	}
	r.checkMode(inner, rounds)
	r.nameRounds(inner, rounds, flowName)
	for key, name := range map[string]string{"provides": rounds.Provides, "version": rounds.Version} {
		if inner.has(key) && !inner.failed(key) {
			r.checkSymbol(inner, key, name)
		}
	}
	inner.rest()
	return rounds
}

func (r *reader) nameRounds(t *table, rounds *Rounds, flowName string) {
	switch {
	case t.failed("name"):
	case !t.has("name"):
		if rounds.Name = flowName + flow.RetrySuffix; flowName == "" {
			return // already a fault
		}
		if logbook.MaxLimits.CheckName("name", rounds.Name) != nil {
			t.fault("name", "missing, and the default, %s with %q after it, is too long", quoted(flowName), flow.RetrySuffix)
			return
		}
		fallthrough
	default:
		r.checkSymbol(t, "name", rounds.Name)
		r.claim(t, "name", rounds.Name)
	}
}

// checkMode checks that a retry is of one kind, and has no keys of another.
func (r *reader) checkMode(t *table, rounds *Rounds) {
	var given []string
	for _, mode := range modes {
		if t.has(mode) {
			given = append(given, mode)
		}
	}
	_, attempts := t.values["attempts"]
	switch {
	case attempts:
		t.known["attempts"] = true
		t.fault("attempts", "a flow has rounds, not attempts: write times = %s", shortened(fmt.Sprint(t.values["attempts"])))
		return
	case len(given) == 0:
		t.fault("", "the retry has no mode: add one of %s", strings.Join(modes, ", "))
		return
	case len(given) > 1:
		t.fault(given[1], "a retry has one mode: remove this key, or %s", given[0])
		return
	}
	if always := given[0]; rounds.AlwaysRevert || rounds.AlwaysRevertAll {
		for _, key := range []string{"provides", "delay", "backoff_percent", "max_delay", "jitter_percent", "only", "never", "permanent", "reverting_all"} {
			if t.has(key) {
				t.fault(key, "with %s, there is no second round: remove this key", always)
			}
		}
		return
	}
	for _, key := range []string{"always_revert", "always_revert_all"} {
		if t.has(key) && !t.failed(key) {
			t.fault(key, "false has no effect: remove the key")
		}
	}
	for _, key := range []string{"backoff_percent", "max_delay", "jitter_percent"} {
		if t.has(key) && !t.has("delay") {
			t.fault(key, "this key requires delay")
		}
	}
}

// list reads values, or the symbol of a list of them.
func (r *reader) list(t *table, key string) List {
	if !t.has(key) {
		return List{}
	}
	if symbol, ok := t.values[key].(string); ok {
		r.checkSymbol(t, key, symbol)
		return List{Symbol: symbol}
	}
	values, ok := t.values[key].([]any)
	switch {
	case !ok:
		t.fault(key, "must be a list of values or the name of a list, not %s", kindOf(t.values[key]))
		return List{}
	case len(values) == 0 || len(values) > flow.MaxRounds:
		t.fault(key, "the list has %d values; it must have 1 to %d", len(values), flow.MaxRounds)
		return List{}
	}
	list := List{}
	for i, value := range values {
		text := r.json(t, fmt.Sprintf("%s[%d]", key, i), value)
		if len(text) > maxRoundValue {
			t.fault(key, "value %d has %d bytes; the limit is %d", i+1, len(text), maxRoundValue)
		}
		list.Values = append(list.Values, text)
	}
	return list
}

// json is a value as JSON; null if it has none, which is a fault.
func (r *reader) json(t *table, key string, value any) json.RawMessage {
	if reason := unfit(value); reason != "" {
		t.fault(key, "%s", reason)
		return json.RawMessage("null")
	}
	text, err := logbook.EncodeJSON(value)
	if err != nil {
		t.fault(key, "%v", err)
		return json.RawMessage("null")
	}
	return text
}

// retrier makes the retry for package flow.
func (r *Rounds) retrier() *flow.Retrier {
	var options []flow.RetryOption
	if r.Provides != "" {
		options = append(options, flow.Provides(r.Provides))
	}
	if r.Version != "" {
		options = append(options, flow.Version(r.Version))
	}
	if r.Delay > 0 {
		options = append(options, flow.Pause(r.backoff()))
	}
	for _, filter := range r.filter() {
		options = append(options, filter)
	}
	if r.Permanent == "retry" {
		options = append(options, flow.RetryPermanent())
	}
	if r.RevertingAll {
		options = append(options, flow.RevertingAll())
	}
	switch {
	case r.AlwaysRevert:
		return flow.AlwaysRevert(r.Name, options...)
	case r.AlwaysRevertAll:
		return flow.AlwaysRevertAll(r.Name, options...)
	case r.ForEach.Symbol != "":
		return flow.ParameterizedForEach(r.Name, r.ForEach.Symbol, options...)
	case len(r.ForEach.Values) > 0:
		return flow.ForEach(r.Name, r.ForEach.Values, options...)
	}
	return flow.Times(r.Name, r.Times, options...)
}
