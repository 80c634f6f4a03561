package admission_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/raftboard/node/admission"
)

// Unknown callers at the raft port cannot fill the disk with log lines.
func TestRefusalsAreLoggedAtABoundedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := hclog.New(&hclog.LoggerOptions{Output: &log})
		warn := admission.NewRefusalLog(logger)
		const attempts, periods = 10_000, 3
		stranger := errors.New("node " + strings.Repeat("\n", 4_000))
		for range periods {
			for range attempts {
				warn("10.0.0.9:4711", stranger)
			}
			time.Sleep(admission.RefusalPeriod)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "[WARN]")[1:]
		if len(lines) != periods*admission.RefusalLines || log.Len() > len(lines)*8*admission.MaxRefusalText {
			t.Errorf("%d refusals make %d lines of %d bytes", periods*attempts, len(lines), log.Len())
		}
		if last := lines[(periods-1)*admission.RefusalLines]; !strings.Contains(last, "omitted=9995") {
			t.Errorf("the first line of a period says %.200q, and not how many were omitted", last)
		}
	})
}

// A refusal is logged and stored without terminal control bytes, wherever the text is cut.
func TestRefusalTextsAreClean(t *testing.T) {
	t.Parallel()
	for before := range 4 {
		text := admission.RefusalText(fmt.Errorf("%s%s", strings.Repeat("x", admission.MaxRefusalText-before), "\u169b\x9b31m"))
		if !clean(text) || len(text) > 2*admission.MaxRefusalText {
			t.Errorf("%q", text)
		}
	}
}

// clean reports whether a terminal only shows a text.
func clean(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}
