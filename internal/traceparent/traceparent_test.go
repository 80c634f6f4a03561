package traceparent_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/conductord/conductord/internal/traceparent"
	"github.com/conductord/conductord/logbook"
)

const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestParse(t *testing.T) {
	for name, row := range map[string]struct {
		text string
		want error // nil: valid
	}{
		"sampled":           {good, nil},
		"not sampled":       {good[:53] + "00", nil},
		"flags to come":     {good[:53] + "ff", nil},
		"empty":             {"", logbook.ErrInvalid},
		"too short":         {good[:54], logbook.ErrInvalid},
		"too long":          {good + "-", logbook.ErrLimit},
		"another version":   {"01" + good[2:], logbook.ErrInvalid},
		"version ff":        {"ff" + good[2:], logbook.ErrInvalid},
		"capital letters":   {strings.ToUpper(good), logbook.ErrInvalid},
		"capital flags":     {good[:53] + "0A", logbook.ErrInvalid},
		"no digit":          {strings.Replace(good, "4bf9", "4bg9", 1), logbook.ErrInvalid},
		"trace of zeros":    {"00-" + strings.Repeat("0", 32) + good[35:], logbook.ErrInvalid},
		"span of zeros":     {good[:36] + strings.Repeat("0", 16) + good[52:], logbook.ErrInvalid},
		"a hyphen is wrong": {good[:35] + "_" + good[36:], logbook.ErrInvalid},
	} {
		_, err := traceparent.Parse("posting traceparent", row.text)
		if !errors.Is(err, row.want) {
			t.Errorf("%s: %q gives %v, and should give %v", name, row.text, err, row.want)
		}
		if err != nil && !strings.Contains(err.Error(), "posting traceparent") {
			t.Errorf("%s: the error %q does not name the field", name, err)
		}
	}
}

func TestOfNoSpan(t *testing.T) {
	if got := traceparent.Of(context.Background()); got != "" {
		t.Errorf("the traceparent of no span is %q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(good)
	f.Add(strings.ToUpper(good))
	f.Fuzz(func(t *testing.T, text string) {
		span, err := traceparent.Parse("traceparent", text)
		if err != nil {
			return
		}
		if !span.IsValid() || !span.IsRemote() {
			t.Fatalf("%q is read as a span that is not valid or not remote", text)
		}
		if again := traceparent.Of(trace.ContextWithSpanContext(t.Context(), span)); again != text {
			t.Fatalf("%q is written as %q", text, again)
		}
	})
}
