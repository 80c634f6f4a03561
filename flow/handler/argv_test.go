//go:build unix

package handler_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/logbook"
)

// showArgv prints each argument of its command line as a line of JSON.
const showArgv = `sep=; printf '['; for a in "$@"; do printf '%s"%s"' "$sep" "$a"; sep=,; done; printf ']'`

func TestArgv(t *testing.T) {
	long := strings.Repeat("x", handler.MaxArgument)
	arguments := logbook.Values{
		"order": json.RawMessage(`"ü 7"`), "amount": json.RawMessage(`1.50`), "empty": json.RawMessage(`""`), "dash": json.RawMessage(`"-rf"`),
		"list": json.RawMessage(`[1, true]`), "null": json.RawMessage(`null`), "nul": json.RawMessage(`"a\u0000b"`),
		"parcel": json.RawMessage(`{"to": {"city": "Linz"}, "sizes": [3, null]}`), "extra": json.RawMessage(`{"note": "x"}`),
		"dot.ted": json.RawMessage(`"exact"`), "dot": json.RawMessage(`{"ted": "inner", "other": 1}`),
		"long": json.RawMessage(`"` + long + `"`), "longer": json.RawMessage(`"` + long + `x"`), "password": json.RawMessage(`"hunter2!"`),
	}
	rows := []struct {
		name    string
		argv    []string
		want    string // input of the handler
		kind    string // or kind of the step's failure
		message string
	}{
		{name: "none", want: `[]`},
		{name: "as it stands", argv: []string{"--", "a b", "", "$HOME", "a b"}, want: `["--","a b","","$HOME","a b"]`},
		{name: "text and number", argv: []string{"{order}", "--amount", "{amount}"}, want: `["ü 7","--amount","1.50"]`},
		{name: "within", argv: []string{"--in={order}/{amount}"}, want: `["--in=ü 7/1.50"]`},
		{name: "empty", argv: []string{"{empty}"}, want: `[""]`},
		{name: "leading dash", argv: []string{"--", "{dash}"}, want: `["--","-rf"]`},
		{name: "JSON", argv: []string{"{list}", "{null}"}, want: `["[1,true]","null"]`},
		{name: "braces", argv: []string{"{{{amount}}}"}, want: `["{1.50}"]`},
		{name: "absent", argv: []string{"--tongue={tongue}", "x"}, want: `["x"]`},
		{name: "inner values", argv: []string{"--to={parcel.to.city}", "{parcel.sizes.0}", "{parcel.sizes.1}"}, want: `["--to=Linz","3","null"]`},
		{name: "names with dots", argv: []string{"{dot.ted}", "{dot.other}"}, want: `["exact","1"]`},
		{name: "inner value of an optional argument", argv: []string{"{extra.note}", "--more={extra.more}", "{tongue.first}"}, want: `["x"]`},
		{name: "inner value of a required argument", argv: []string{"{parcel.to.zip}"}, kind: logbook.FailureArgument,
			message: `cannot fill argv[0]: there is no "parcel.to.zip": "parcel.to" is an object`},
		{name: "NUL", argv: []string{"x", "{nul}"}, kind: logbook.FailureArgument, message: "argv[1] is invalid: it has a NUL byte"},
		{name: "longest", argv: []string{"{long}"}, want: `["` + long + `"]`},
		{name: "longest together", argv: []string{"{long}", "{long}", long[3:]}, want: `["` + long + `","` + long + `","` + long[3:] + `"]`},
		{name: "too long", argv: []string{"{longer}"}, kind: logbook.FailureArgument, message: "argv[0] is too large: 32769 bytes, and the limit is 32768"},
		{name: "too long together", argv: []string{"{long}", "{long}", "{long}"}, kind: logbook.FailureArgument, message: "argv is too large: 98307 bytes, and the limit is 98304"},
		{name: "secret", argv: []string{"--password={password}"}, kind: logbook.FailureSecret,
			message: `argv[0] would show the secret argument "password" to all users of the machine`},
		{name: "inside a secret", argv: []string{"{password.inner}"}, kind: logbook.FailureSecret,
			message: `argv[0] would show the secret argument "password" to all users of the machine`},
	}
	directory := t.TempDir()
	install(t, directory, "show", showArgv)
	set := open(t, directory)
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			task := set.Task("show", "show", handler.Argv(row.argv...), handler.MayLack("extra", "tongue"))
			c := call(arguments)
			c.Secrets = []string{"password"}
			result, err := task.Execute(t.Context(), c)
			if row.kind == "" {
				if raw, _ := result.(json.RawMessage); err != nil || string(raw) != row.want {
					t.Errorf("it was given %.200s, error %v, want %.200s", raw, err, row.want)
				}
				return
			}
			var failure *logbook.Failure
			if !errors.As(err, &failure) || failure.Kind != row.kind || !failure.Permanent || !strings.Contains(failure.Message, row.message) {
				t.Errorf("error %+v, want a permanent %s: %s", err, row.kind, row.message)
			}
			if err := task.(flow.Reverter).Revert(t.Context(), c); err == nil {
				t.Error("the revert is given what the execution is refused")
			}
		})
	}
}

func TestCheckArgv(t *testing.T) {
	has := func(argument string) bool { return argument == "a" }
	for _, row := range []struct {
		argv []string
		want string
	}{
		{[]string{"{a}", "{{}}", "-"}, ""},
		{make([]string, handler.MaxArgv), ""},
		{make([]string, handler.MaxArgv+1), "argv is too large: 257 arguments, and the limit is 256"},
		{[]string{strings.Repeat("x", handler.MaxArgument+1)}, "argv[0] is too large: 32769 bytes, and the limit is 32768"},
		{[]string{"x", "a\x00"}, "argv[1] is invalid: it has a NUL byte"},
		{[]string{"{b}"}, `"b" is not an argument of the step`},
		{[]string{"{"}, `a brace that is not part of a pair`},
		{[]string{"a}"}, `a brace that is not part of a pair`},
		{[]string{"{}"}, `a brace that is not part of a pair`},
		{[]string{"{a{b}"}, `a brace that is not part of a pair`},
	} {
		err := handler.CheckArgv(row.argv, has)
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%.40q: %v, want %q", row.argv, err, row.want)
		}
	}
}
