package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

const (
	password = "canary-8f3a<1c>\"77"
	pemKey   = "-----BEGIN KEY-----\nMIGEAgEAMBAGByqGSM49\nAgEGBSuBBAAKBG0wawIB\n-----END KEY-----\n"
)

func secretsOf(_ context.Context, name string) (string, error) {
	switch name {
	case "db":
		return password, nil
	case "key":
		return pemKey, nil
	case "pin":
		return "123456", nil
	case "short":
		return "12345", nil
	case "large":
		return strings.Repeat("x", engine.MaxSecret+1), nil
	case "binary":
		return "topsecret\xffpassword1", nil
	case "panics":
		panic("no such luck")
	}
	return "", fmt.Errorf("%w: nobody has it", logbook.ErrNotFound)
}

// secretStep is a step that requires "in" and passes the value to a function.
type secretStep struct {
	execute func(call *flow.Call) (any, error)
	revert  func(call *flow.Call) error
}

func (s secretStep) Execute(_ context.Context, call *flow.Call) (any, error) { return s.execute(call) }

func (s secretStep) Revert(_ context.Context, call *flow.Call) error {
	if s.revert == nil {
		return nil
	}
	return s.revert(call)
}

func argument(call *flow.Call) (text string) {
	_ = json.Unmarshal(call.Arguments["in"], &text)
	return text
}

// runWithSecret runs one step whose argument is a reference, or what store says.
func runWithSecret(t *testing.T, step secretStep, store logbook.Values) (engine.Result, string, error) {
	t.Helper()
	local := engine.Local{Secrets: secretsOf}
	if store == nil {
		store = logbook.Values{"in": json.RawMessage(`{"secret":"db"}`)}
	}
	result, err := local.Run(t.Context(), flow.Linear("f", flow.NewStep("s", step, flow.Requires("in"))), store)
	record, marshalErr := json.Marshal(result.Detail)
	if marshalErr != nil {
		t.Fatal(marshalErr)
	}
	return result, string(record), err
}

// TestSecretsAreNeverRecorded: a step gets its secrets, and nothing that it returns, reports
// or prints puts one into the logbook.
func TestSecretsAreNeverRecorded(t *testing.T) {
	part := password[3:14] // the rest after a cut
	for _, row := range []struct {
		name string
		step secretStep
		want string // in the record
	}{
		{"result", secretStep{execute: func(c *flow.Call) (any, error) { return argument(c), nil }}, `"[secret db]"`},
		{"within a result", secretStep{execute: func(c *flow.Call) (any, error) {
			return map[string]any{"url": "db://u:" + argument(c) + "@h", argument(c): []int{1}}, nil
		}}, `"db://u:[secret db]@h"`},
		{"failure", secretStep{execute: func(c *flow.Call) (any, error) { return nil, errors.New("refused " + argument(c)) }}, `refused [secret db]`},
		{"part in a failure", secretStep{execute: func(c *flow.Call) (any, error) { return nil, fmt.Errorf("it begins %.20q…", "x"+part) }}, `it begins \"x[secret db]\"…`},
		{"kind of a failure", secretStep{execute: func(c *flow.Call) (any, error) { return nil, flow.Fail(argument(c), errors.New("x")) }}, `[secret db]`},
		{"cause of a failure", secretStep{execute: func(c *flow.Call) (any, error) {
			return nil, &logbook.Failure{Kind: "k", Message: "m", Causes: []logbook.Failure{{Kind: "k", Message: argument(c)}}}
		}}, `"message":"[secret db]"`},
		{"details of a failure", secretStep{execute: func(c *flow.Call) (any, error) {
			return nil, flow.WithDetails(errors.New("x"), map[string]any{argument(c): 1, "login": map[string]string{"password": argument(c)}})
		}}, `"login":{"password":"[secret db]"}`},
		{"panic", secretStep{execute: func(c *flow.Call) (any, error) { panic(argument(c)) }}, `[secret db]`},
		{"stderr", secretStep{execute: func(c *flow.Call) (any, error) {
			c.KeepStderr(password[5:]+"\nlogging in with "+argument(c)+"\nagain "+password[:12], true)
			return nil, nil
		}}, `logging in with [secret db]\nagain [secret db]`},
		{"not yet", secretStep{execute: func(c *flow.Call) (any, error) {
			if c.Asked > 0 {
				return argument(c) == password, nil
			}
			return nil, flow.NotYet(time.Millisecond, argument(c))
		}}, `"result":true`},
		{"progress", secretStep{execute: func(c *flow.Call) (any, error) { return nil, c.Progress(1, 2, argument(c)) }}, `[secret db]`},
		{"revert", secretStep{
			execute: func(c *flow.Call) (any, error) { return nil, errors.New("no") },
			revert:  func(c *flow.Call) error { return errors.New("cannot undo with " + argument(c)) },
		}, `cannot undo with [secret db]`},
	} {
		t.Run(row.name, func(t *testing.T) {
			given := ""
			execute := row.step.execute
			row.step.execute = func(c *flow.Call) (any, error) { given = argument(c); return execute(c) }
			_, record, _ := runWithSecret(t, row.step, nil)
			if given != password {
				t.Errorf("the step was given %q", given)
			}
			for at := range len(password) - 8 + 1 {
				if escaped, _ := json.Marshal(password[at : at+8]); strings.Contains(record, strings.Trim(string(escaped), `"`)) {
					t.Fatalf("the record has the part %s of the secret: %s", escaped, record)
				}
			}
			if !strings.Contains(strings.ReplaceAll(record, `\u003c`, "<"), row.want) {
				t.Errorf("the record is %s, want %s in it", record, row.want)
			}
		})
	}
}

// TestReferencesToSecrets: the places where references count, and the failures of references
// that cannot be resolved.
func TestReferencesToSecrets(t *testing.T) {
	many := `[` + strings.Repeat(`{"secret":"db"},`, 64) + `{"secret":"db"}]`
	for _, row := range []struct {
		name, value string
		given       string // input of the step
		message     string // or why it fails
	}{
		{"nested", `{"a":[1.50,{"secret":"pin"}],"b":"<&>"}`, `{"a":[1.50,"123456"],"b":"<&>"}`, ""},
		{"other fields beside it", `{"secret":"db","x":1}`, `{"secret":"db","x":1}`, ""},
		{"no text", `{"secret":7}`, `{"secret":7}`, ""},
		{"a text", `"secret"`, `"secret"`, ""},
		{"unknown", `{"secret":"nope"}`, "", `secret "nope": not found: nobody has it`},
		{"too short", `{"secret":"short"}`, "", `secret "short" has fewer than 6 bytes`},
		{"not UTF-8", `{"secret":"binary"}`, "", `secret "binary" is not UTF-8`},
		{"too large", `{"secret":"large"}`, "", `secret "large" is too large: 65537 bytes, and the limit is 65536`},
		{"too many", many, "", `the list of references to secrets is too large: 65 references, and the limit is 64`},
		{"a panic", `{"secret":"panics"}`, "", `no such luck`},
	} {
		t.Run(row.name, func(t *testing.T) {
			given := ""
			result, _, err := runWithSecret(t, secretStep{execute: func(c *flow.Call) (any, error) {
				given = string(c.Arguments["in"])
				return nil, nil
			}}, logbook.Values{"in": json.RawMessage(row.value)})
			if row.message == "" && (err != nil || given != row.given) {
				t.Errorf("the step was given %s, %v; want %s", given, err, row.given)
			}
			if row.message == "" {
				return
			}
			if err == nil || !strings.Contains(err.Error(), row.message) || given != "" {
				t.Errorf("got %v, and the step was given %q; want %s", err, given, row.message)
			}
			var failure *logbook.Failure
			if errors.As(err, &failure); row.name != "a panic" && !failure.Matches(logbook.FailureSecret) {
				t.Errorf("the failure is %+v in state %s", failure, result.State)
			}
		})
	}
}

// TestResultsAreNoReferences checks that a step cannot get a secret by returning a reference.
func TestResultsAreNoReferences(t *testing.T) {
	given := ""
	taker := secretStep{execute: func(c *flow.Call) (any, error) { given = string(c.Arguments["v"]); return nil, nil }}
	root := flow.Linear("f", gives("a", `{"secret":"db"}`, flow.Provides("v")), flow.NewStep("b", taker, flow.Requires("v")))
	if _, err := (engine.Local{Secrets: secretsOf}).Run(t.Context(), root, nil); err != nil || given != `{"secret":"db"}` {
		t.Errorf("the step was given %s, %v", given, err)
	}
	if _, err := engine.RunLocal(t.Context(), flow.Linear("f", flow.NewStep("s", taker, flow.Requires("v"))),
		logbook.Values{"v": json.RawMessage(`{"secret":"db"}`)}); err == nil || !strings.Contains(err.Error(), "this conductor has no secrets") {
		t.Errorf("without secrets: got %v", err)
	}
}

// TestSecretsOfLines: a single line of a secret is hidden too, and values keep similar texts.
func TestSecretsOfLines(t *testing.T) {
	_, record, err := runWithSecret(t, secretStep{execute: func(c *flow.Call) (any, error) {
		return []any{"MIGEAgEAMBAGByqGSM49", "-----BEGIN", json.RawMessage(`123456`)}, nil
	}}, logbook.Values{"in": json.RawMessage(`[{"secret":"key"},{"secret":"pin"}]`)})
	if err != nil || !strings.Contains(record, `["[secret key]","-----BEGIN","[secret pin]"]`) {
		t.Errorf("the record is %s, %v", record, err)
	}
}

// TestCallsNameTheirSecrets checks that a step knows which of its arguments hold secrets.
func TestCallsNameTheirSecrets(t *testing.T) {
	for value, want := range map[string]string{`{"secret":"pin"}`: "[in]", `[{"a":{"secret":"pin"}}]`: "[in]", `{"secret":7}`: "[]", `"pin"`: "[]"} {
		_, _, err := runWithSecret(t, secretStep{execute: func(c *flow.Call) (any, error) {
			if got := fmt.Sprint(c.Secrets); got != want {
				t.Errorf("%s: the secrets are %s, want %s", value, got, want)
			}
			return nil, nil
		}}, logbook.Values{"in": json.RawMessage(value)})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestMarksCanBeTooLong: a result that is too large after its secrets are hidden fails the
// step, and does not break the flow's record.
func TestMarksCanBeTooLong(t *testing.T) {
	_, record, err := runWithSecret(t, secretStep{execute: func(c *flow.Call) (any, error) {
		return strings.Repeat("123456", logbook.MaxLimits.Value/6-1), nil
	}}, logbook.Values{"in": json.RawMessage(`{"secret":"pin"}`)})
	var failure *logbook.Failure
	if !errors.As(err, &failure) || !failure.Matches(logbook.FailureResult) || !strings.Contains(failure.Message, "cannot hide secrets in its result") {
		t.Errorf("got %v", err)
	}
	if strings.Contains(record, "123456") {
		t.Error("the record has the secret")
	}
}

// FuzzHideSecrets checks that no recorded text of a step contains a part of its secret.
func FuzzHideSecrets(f *testing.F) {
	f.Add(password, "x", 3, 9)
	f.Add("secret\nof two lines", "ünï", 0, 15)
	f.Add("0secret0", "\xffsecret0", 0, 1) // dropping the byte would make the secret whole
	f.Fuzz(func(t *testing.T, secret, around string, from, to int) {
		if len(secret) < 8 || len(secret) > 200 || !utf8.ValidString(secret) || from < 0 || to > len(secret) || from > to || len(around) > 1000 {
			return
		}
		text := around + secret[from:to] + around + secret
		local := engine.Local{Secrets: func(context.Context, string) (string, error) { return secret, nil }}
		step := secretStep{execute: func(c *flow.Call) (any, error) {
			c.KeepStderr(text, false)
			return nil, errors.New(text)
		}}
		result, _ := local.Run(t.Context(), flow.NewStep("s", step, flow.Requires("in")), logbook.Values{"in": json.RawMessage(`{"secret":"n"}`)})
		for _, atom := range result.Detail.Atoms {
			for _, attempt := range atom.Attempts {
				recorded := []string{attempt.Stderr}
				if attempt.Failure != nil {
					recorded = append(recorded, attempt.Failure.Message)
				}
				for i := range recorded { // a mark and the text beside it can look like a part
					recorded[i] = strings.ReplaceAll(recorded[i], "[secret n]", "\xff")
				}
				for at := range len(secret) - 8 + 1 {
					if part := secret[at : at+8]; strings.Contains(strings.Join(recorded, "\xff"), part) {
						t.Fatalf("the attempt has %q of %q: %+v", part, secret, attempt)
					}
				}
			}
		}
	})
}
