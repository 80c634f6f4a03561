package conductor

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

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
	id, encrypted := valuekeys.KeyID(value)
	if !encrypted {
		return nil
	}
	return fmt.Errorf("%w with key %s, and cannot be decrypted here: %s; add the key to the file in conductor.value_keys; "+
		"if the file has the key, the value was changed or moved", errEncrypted, id, what)
}
