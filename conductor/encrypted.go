package conductor

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/valuekeys"
)

// loggable returns a text or an error for the log. With keys it hides the text, which can contain
// values.
func (o *Options) loggable(text any) any {
	if o.encrypts && text != nil {
		return "omitted: values are encrypted"
	}
	return text
}

// errEncrypted: a value that the flow may need could not be decrypted.
var errEncrypted = errors.New("a value is encrypted")

// checkDecrypted returns an errEncrypted for a value that is still encrypted: board and logbook
// have no key for it.
func checkDecrypted(detail *logbook.FlowDetail, store logbook.Values) error {
	if err := checkValue(detail.Factory.Args, "the arguments of its flow"); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(store)) {
		if err := checkValue(store[name], fmt.Sprintf("%q of its store", name)); err != nil {
			return err
		}
	}
	if detail.Definition != nil {
		if err := checkValue(json.RawMessage(`"`+detail.Definition.Hash+`"`), "the definition of its flow"); err != nil {
			return err
		}
	}
	for i := range detail.Interventions {
		if err := checkValue(detail.Interventions[i].Result, "the result that an operator gave to step "+detail.Interventions[i].Step); err != nil {
			return err
		}
	}
	for i := range detail.Atoms {
		for j := range detail.Atoms[i].Attempts {
			if err := checkValue(detail.Atoms[i].Attempts[j].Result, "a result of step "+detail.Atoms[i].Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkValue(value json.RawMessage, what string) error {
	return checkValueFor(value, what, "add the key to the file in conductor.value_keys")
}

// checkValueFor returns an errEncrypted with a remedy for an encrypted value.
func checkValueFor(value json.RawMessage, what, remedy string) error {
	id, encrypted := valuekeys.KeyID(value)
	if !encrypted {
		return nil
	}
	return fmt.Errorf("%w with key %s, and cannot be decrypted here: %s; %s; "+
		"if the file has the key, the value was changed or moved", errEncrypted, id, what, remedy)
}

// checkDecryptedWork returns an errEncrypted for a value of an attempt that is still encrypted: the worker's client
// has no key for it. Texts of failures may be encrypted: they are for readers.
func checkDecryptedWork(work *steps.Work) error {
	check := func(value json.RawMessage, what string) error {
		return checkValueFor(value, what, "add the key to the worker's file of value keys (CONDUCTORD_VALUE_KEYS)")
	}
	values := func(values logbook.Values, what string) error {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if err := check(values[name], fmt.Sprintf("%s %q", what, name)); err != nil {
				return err
			}
		}
		return nil
	}
	details := func(failure *logbook.Failure, what string) error {
		if failure == nil {
			return nil
		}
		return values(failure.Details, "the "+what+"'s detail")
	}
	all := []error{values(work.Arguments, "the argument"), values(work.Checkpoints, "the checkpoint"), check(work.Result, "the result of the step"),
		details(work.LastFailure, "last failure"), details(work.Failure, "failure")}
	if work.LastProgress != nil {
		all = append(all, check(work.LastProgress.Details, "the details of the last progress"))
	}
	for _, step := range slices.Sorted(maps.Keys(work.FlowFailures)) {
		all = append(all, details(work.FlowFailures[step], "failure of step "+step))
	}
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// maxKeyWait limits the time between two offers of an attempt whose values the worker cannot decrypt.
const maxKeyWait = time.Minute

// withoutKey ends an attempt that is not started: "not yet" is neither a failure nor an attempt for the step's retry,
// so a worker with the key can get the attempt next. The time until then grows with each answer.
func withoutKey(given *steps.Work, missing error) steps.Outcome {
	after := maxKeyWait
	if given.Asked < 6 {
		after = min(time.Second<<given.Asked, maxKeyWait)
	}
	return steps.Outcome{ID: given.ID, Done: true, NotYet: after, Output: fmt.Sprintf("not started: %s\n", missing)}
}
