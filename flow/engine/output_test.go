package engine_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// printing is a step that requires "in" and prints.
type printing struct {
	print func(ctx context.Context, secret string)
}

func (s printing) Execute(ctx context.Context, call *flow.Call) (any, error) {
	s.print(ctx, argument(call))
	return nil, nil
}

// outputOf runs a step with a secret, and returns the lines of its output.
func outputOf(t *testing.T, secret string, print func(ctx context.Context, secret string)) (lines []string) {
	t.Helper()
	ended := false
	defer func() { ended = true }()
	local := engine.Local{
		Secrets: func(context.Context, string) (string, error) { return secret, nil },
		Output: func(call *flow.Call, line string) {
			if call.Step != "s" || call.Attempt != 1 || ended {
				t.Errorf("a line of %+v, after its end: %t", call, ended)
			}
			lines = append(lines, line)
		},
	}
	store := logbook.Values{"in": json.RawMessage(`1`)}
	if secret != "" {
		store["in"] = json.RawMessage(`{"secret":"db"}`)
	}
	if _, err := local.Run(t.Context(), flow.Linear("f", flow.NewStep("s", printing{print}, flow.Requires("in"))), store); err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestOutputLines checks that a step's output becomes the same lines for any split into writes,
// and that no line has a secret or a part of one.
func TestOutputLines(t *testing.T) {
	const short = "abc\nde\nfgh\ni" // no line of it is long enough to be hidden by itself
	most := strings.Repeat("x", 16<<10)
	for _, row := range []struct {
		name, secret string
		writes       []string
		want         []string
	}{
		{"lines", "", []string{"a\nb\n", "c\r", "d"}, []string{"a", "b", "c", "d"}},
		{"a line in pieces", "", []string{"a", "b", "\n"}, []string{"ab"}},
		{"empty lines", "", []string{"\n\r\n", "a\r\n\r\n"}, []string{"a"}},
		{"not UTF-8", "", []string{"a\xff\xfeb\n"}, []string{"a\uFFFDb"}},
		{"the longest", "", []string{most + "\n"}, []string{most}},
		{"too long", "", []string{most, "y", "z\nb\n"}, []string{most, "b"}},
		{"longer by its repair", "", []string{"\xff" + most[1:] + "\n"}, []string{"\uFFFD" + most[3:]}},
		{"a secret", password, []string{"it is " + password + "!\n"}, []string{"it is [secret db]!"}},
		{"a secret in pieces", password, []string{"it is ", password[:7], password[7:] + "!"}, []string{"it is [secret db]!"}},
		{"a part of a secret", password, []string{password[:9], "\n", password[9:], "\n"}, []string{"[secret db]", "[secret db]"}},
		{"a secret at the end of too long a line", password, []string{most[4:] + password, "\nb\n"}, []string{most[4:] + password[:4], "b"}},
		{"a secret of lines", pemKey, []string{"key:\n", pemKey[:30], pemKey[30:], "that was it\n"}, []string{"key:", "[secret db]that was it"}},
		{"of short lines", short, []string{"x\nabc\n", "de\n", "fgh\n", "i\ny\n"}, []string{"x", "[secret db]", "y"}},
		{"of short lines, byte by byte", short, strings.Split("x\n"+short+"\ny\n", ""), []string{"x", "[secret db]", "y"}},
		{"a line that only looks so", short, []string{"zabc\n", "zz\n"}, []string{"zabc", "zz"}},
		// The bound cuts it, and shorter parts than eight bytes are left.
		{"without end", short, []string{strings.Repeat(short, 2<<10) + "\n", "b\n"}, []string{"[secret db]abc", "fgh", "i[secret db]", "b"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := outputOf(t, row.secret, func(ctx context.Context, _ string) {
				for _, text := range row.writes {
					if n, err := io.WriteString(flow.Output(ctx), text); n != len(text) || err != nil {
						t.Errorf("wrote %d of %d bytes, %v", n, len(text), err)
					}
				}
			})
			if !slices.Equal(got, row.want) {
				t.Errorf("%.300q, want %.300q", got, row.want)
			}
		})
	}
}

func TestLoggerOfAStep(t *testing.T) {
	var left *slog.Logger
	got := outputOf(t, password, func(ctx context.Context, secret string) {
		left = flow.Logger(ctx)
		left.Warn("logging in", "user", "ann", "password", secret)
		left.Info("two\nlines")
	})
	left.Info("after its end")
	want := []string{`level=WARN msg="logging in" user=ann password="[secret db]\"77"`, `level=INFO msg="two\nlines"`}
	if len(got) != 2 || !strings.HasPrefix(got[0], `level=WARN msg="logging in" user=ann password="[secret db]`) || strings.Contains(got[0], password[:8]) || got[1] != want[1] {
		t.Errorf("%q", got)
	}
	if logger := flow.Logger(t.Context()); logger != slog.Default() {
		t.Errorf("outside of a step: %v", logger)
	}
	if flow.Output(t.Context()) != io.Discard {
		t.Error("something takes the output of no step")
	}
}
