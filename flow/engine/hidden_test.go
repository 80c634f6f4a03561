package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// account is a secret that is a JSON document, with a text that is one, too.
const account = `{"user":"joe","pass":"hunter2\"<hunter2>", "id":1234567890, "scopes":["read-all","write-all"],
 "key":"-----BEGIN-----\nMIGEAgEAMBAG\n-----END-----", "inner":"{\"token\": \"tok\\\"en-of-the-inner\"}"}`

// TestSecretsInValues: the parts of a secret that are hidden in a result, and the parts that
// are not.
func TestSecretsInValues(t *testing.T) {
	for _, row := range []struct{ name, secret, result, want string }{
		{"a document", account, account, `"[secret n]"`},
		{"within another", account, `{"credentials":` + account + `}`, `{"credentials":"[secret n]"}`},
		{"in another order", `{"user":"joe","pass":"hunter2"}`, `[{ "pass" : "hunter2", "user" : "joe" }]`, `["[secret n]"]`},
		{"with other numbers", `{"pin":1500.0,"user":"joe"}`, `{"user":"joe","pin":1.5e3}`, `"[secret n]"`},
		{"in a text", `{"user":"joe","pass":"hunter2"}`, `"{\"pass\": \"hunter2\", \"user\": \"joe\"}"`, `"[secret n]"`},
		{"in a text of a text", `{"user":"joe","pin":1234}`, `{"a":"[\"{\\\"pin\\\":1234,\\\"user\\\":\\\"joe\\\"}\"]"}`, `{"a":"[\"[secret n]\"]"}`},
		{"a list of it", account, `["read-all","write-all"]`, `"[secret n]"`},
		{"one of its texts", account, `{"password":"is hunter2\"<hunter2>"}`, `{"password":"is [secret n]"}`},
		{"one that was quoted", account, `"is hunter2\\\"\\u003chunter2\\u003E!"`, `"is [secret n]!"`},
		{"a line of one", account, `"MIGEAgEAMBAG"`, `"[secret n]"`},
		{"a text in a text", account, `"tok\"en-of-the-inner"`, `"[secret n]"`},
		{"a number", account, `[1234567890, 1.23456789e9, 12345678901]`, `["[secret n]",1.23456789e9,"[secret n]1"]`},
		{"a key", account, `{"hunter2\"<hunter2>":1}`, `{"[secret n]":1}`},
		{"a document with another field", `{"user":"joe","pass":"hunter2"}`, `{"user":"joe","pass":"hunter2","x":1}`, `{"pass":"hunter2","user":"joe","x":1}`},
		{"a list", `["tok-1-of-shop","tok-2-of-shop"]`, `["tok-1-of-shop","tok-2-of-shop"]`, `"[secret n]"`},
		{"of a list", `["tok-1-of-shop","tok-2-of-shop"]`, `["tok-2-of-shop"]`, `["[secret n]"]`},
		{"a quoted text", `"hunter2"`, `["hunter2","\"hunter2\""]`, `["[secret n]","[secret n]"]`},
		{"a number alone", `1234567`, `[1234567, 1234567.0, "1234567", 123456]`, `["[secret n]","[secret n]","[secret n]",123456]`},
		{"a document in lines", "{\n  \"user\": \"joe\",\n  \"pass\": \"hunter2\"\n}", `{"pass":"hunter2","user":"joe"}`, `"[secret n]"`},
		{"one of several documents", `{"a":"hunter2hunter2"}` + "\n" + `{"b":"joejoejoejoejoe"}`, `[{"b":"joejoejoejoejoe"},"hunter2hunter2"]`, `["[secret n]","[secret n]"]`},
		{"an empty document", `[      ]`, `[]`, `[]`},
		{"half of it", "0123456789abcdefghijklmnopqrstuv", `["x0123456789abcdef", "0123456789abcde", "ghijklmnopqrstuv!"]`, `["x[secret n]","0123456789abcde","[secret n]!"]`},
		{"what is common", "https://ann:hunter2hunter2@example.com", `"https://example.com"`, `"https://example.com"`},
		{"quotation marks", `k"9\x"7\q"5\z"3\w"1`, `"it is k\\\"9\\\\x\\\"7\\\\q\\\"5\\\\z\\\"3\\\\w\\\"1"`, `"it is [secret n]"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, _ := recordedWith(t, row.secret, func(context.Context, *flow.Call) (any, error) { return json.RawMessage(row.result), nil })
			if string(got.result) != row.want {
				t.Errorf("%s, want %s", got.result, row.want)
			}
		})
	}
}

// recorded is the record of a step.
type recorded struct {
	result json.RawMessage
	texts  []string // stderr, failures, lines
}

// task is a flow.Task.
type task func(ctx context.Context, call *flow.Call) (any, error)

func (t task) Execute(ctx context.Context, call *flow.Call) (any, error) { return t(ctx, call) }

type fatal interface {
	Helper()
	Fatal(args ...any)
}

// recordedWith runs a step with a secret.
func recordedWith(t fatal, secret string, execute func(ctx context.Context, call *flow.Call) (any, error)) (r recorded, all string) {
	t.Helper()
	local := engine.Local{
		Secrets: func(context.Context, string) (string, error) { return secret, nil },
		Output:  func(_ *flow.Call, line string) { r.texts = append(r.texts, line) },
	}
	step := flow.NewStep("s", task(execute), flow.Requires("in"))
	result, err := local.Run(context.Background(), flow.Linear("f", step), logbook.Values{"in": json.RawMessage(`{"secret":"n"}`)})
	if len(result.Detail.Atoms) == 0 {
		t.Fatal(err)
	}
	for _, atom := range result.Detail.Atoms {
		for _, attempt := range atom.Attempts {
			r.texts = append(r.texts, attempt.Stderr)
			if attempt.Failure != nil {
				r.texts = append(r.texts, attempt.Failure.Message)
			}
		}
	}
	r.result = result.Steps["s"]
	encoded, _ := json.Marshal(result.Detail)
	return r, string(encoded)
}

// quoters write a text with escapes. The quoted form of a part is a part of the quoted form of
// the text.
var quoters = map[string]func(text string) string{
	"as it is":    func(text string) string { return text },
	"Go":          func(text string) string { return inner(strconv.Quote(text)) },
	"Go in ASCII": func(text string) string { return inner(strconv.QuoteToASCII(text)) },
	"JSON": func(text string) string {
		quoted, _ := json.Marshal(text)
		return inner(string(quoted))
	},
	"JSON without HTML": func(text string) string {
		quoted, _ := logbook.EncodeJSON(text)
		return inner(string(quoted))
	},
}

func inner(quoted string) string { return quoted[1 : len(quoted)-1] }

func drawDocument(depth int) *rapid.Generator[any] {
	text := rapid.Map(rapid.StringOfN(rapid.RuneFrom([]rune("ab01\"\\<é€😀\n\t\u200b")), 0, 30, -1), func(s string) any { return s })
	if depth == 0 {
		return text
	}
	return rapid.OneOf(text,
		rapid.Map(rapid.SliceOfN(drawDocument(depth-1), 1, 3), func(list []any) any { return list }),
		rapid.Map(rapid.MapOfN(rapid.StringMatching(`[a-z]{1,12}`), drawDocument(depth-1), 1, 4), func(m map[string]any) any { return m }))
}

// drawSecret draws a secret, and the texts that must be hidden when it is printed: all of it, and the
// texts within it.
func drawSecret(t *rapid.T) (secret string, texts []string) {
	if rapid.Bool().Draw(t, "is text") {
		secret = rapid.StringOfN(rapid.RuneFrom([]rune("abcxnu01\"\\{}[]<' é€😀\r\n\t\x00\u200b\u202e")), 8, 80, -1).Draw(t, "secret")
		return secret, []string{secret}
	}
	document := drawDocument(3).Draw(t, "document")
	var encoded []byte
	if rapid.Bool().Draw(t, "pretty") {
		encoded, _ = json.MarshalIndent(document, "", "  ")
	} else {
		encoded, _ = logbook.EncodeJSON(document)
	}
	return string(encoded), append(textsIn(document), string(encoded))
}

func textsIn(value any) (texts []string) {
	switch value := value.(type) {
	case string:
		return []string{value}
	case []any:
		for i := range value {
			texts = append(texts, textsIn(value[i])...)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			texts = append(texts, textsIn(value[key])...)
		}
	}
	return texts
}

// TestNoPartOfASecret: for any secret in any printed form, no part of eight bytes is in a text
// for people, and no half in a value.
func TestNoPartOfASecret(t *testing.T) {
	names := make([]string, 0, len(quoters))
	for name := range quoters {
		names = append(names, name)
	}
	slices.Sort(names)
	rapid.Check(t, func(t *rapid.T) {
		secret, texts := drawSecret(t)
		if len(secret) < 8 {
			return
		}
		printed := rapid.SampledFrom(texts).Draw(t, "printed")
		ways := rapid.SliceOfN(rapid.SampledFrom(names), 0, 2).Draw(t, "ways")
		quote := func(text string) string {
			for _, way := range ways {
				text = quoters[way](text)
			}
			return text
		}
		around := rapid.SampledFrom([]string{"", "x", "it is \"", `\`, `{"a":"`, "…\n"}).Draw(t, "around")
		text := around + quote(printed) + around
		text = text[rapid.IntRange(0, len(text)/2).Draw(t, "from"):]
		text = text[:rapid.IntRange(len(text)/2, len(text)).Draw(t, "to")]
		got, _ := recordedWith(t, secret, func(ctx context.Context, call *flow.Call) (any, error) {
			_, _ = io.WriteString(flow.Output(ctx), text)
			call.KeepStderr(text, true)
			return nil, errors.New(text)
		})
		for _, recorded := range got.texts {
			if part := partIn(recorded, printed, 8, quote); part != "" {
				t.Fatalf("%q has %q of the secret %q, printed as %q", recorded, part, secret, text)
			}
		}
		got, _ = recordedWith(t, secret, func(context.Context, *flow.Call) (any, error) { return map[string]any{"a": text}, nil })
		var value map[string]string
		if err := json.Unmarshal(got.result, &value); err != nil {
			t.Fatal(err, string(got.result))
		}
		if least := max(16, (len(printed)+1)/2); len(printed) >= 8 {
			if part := partIn(value["a"], printed, min(len(printed), least), quote); part != "" {
				t.Fatalf("the value %q has %q of the secret %q, printed as %q", value["a"], part, secret, text)
			}
		}
	})
}

// partIn finds a part of a text, of about the given length, in the record.
func partIn(recorded, text string, size int, quote func(string) string) string {
	recorded = strings.ReplaceAll(recorded, "[secret n]", "\xff")
	for at := range text {
		for end := at + size; end <= len(text); end++ {
			part := text[at:end]
			if strings.ToValidUTF8(part, "") != part {
				continue // it ends within a character
			}
			if strings.Contains(recorded, quote(part)) {
				return part
			}
			break
		}
	}
	return ""
}

// TestDocumentsInValues: a secret that is a JSON document is hidden in any key order and with
// any white space.
func TestDocumentsInValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		document := drawDocument(3).Draw(t, "document")
		pretty, _ := json.MarshalIndent(document, "", "\t")
		compact, _ := logbook.EncodeJSON(document)
		if len(compact) < 8 || len(textsIn(document)) == 0 || strings.Trim(string(compact), `[]{},"`) == "" {
			return
		}
		secret, other := pretty, compact
		if rapid.Bool().Draw(t, "compact") {
			secret, other = compact, pretty
		}
		for name, result := range map[string]any{"value": json.RawMessage(other), "text": string(other), "nested": []any{map[string]any{"a": document}}} {
			got, all := recordedWith(t, string(secret), func(_ context.Context, call *flow.Call) (any, error) {
				return result, call.Progress(1, 2, result)
			})
			want := map[string]string{"value": `"[secret n]"`, "text": `"[secret n]"`, "nested": `[{"a":"[secret n]"}]`}[name]
			if string(got.result) != want || strings.Count(all, want) != 2 {
				t.Fatalf("%s: the secret %s is recorded as %s in %s", name, secret, got.result, all)
			}
		}
	})
}

// BenchmarkHide is the cost of the largest texts: of a value, with the largest secret.
func BenchmarkHide(b *testing.B) {
	list := make([]string, 2000)
	for i := range list {
		list[i] = fmt.Sprintf("%024d", i)
	}
	secret, _ := json.Marshal(list)
	for name, text := range map[string]string{
		"plain":  strings.Repeat("what a step has to say. ", logbook.MaxLimits.Value/25),
		"quoted": strings.Repeat(`\\\\\\\\u0041`, logbook.MaxLimits.Value/30),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				recordedWith(b, string(secret), func(context.Context, *flow.Call) (any, error) { return text, nil })
			}
		})
	}
}
