package meant_test

import (
	"testing"

	"github.com/conductord/conductord/internal/meant"
)

// TestWord checks that a misspelt word, and the prefix of a word, find the known word.
func TestWord(t *testing.T) {
	known := []string{"attempts", "delay", "backoff_percent", "jitter_percent", "deadline"}
	for word, want := range map[string]string{
		"backoff": "backoff_percent", "atempts": "attempts", "delya": "delay", "de": "", "jitter": "jitter_percent", "dead": "deadline", "percent": "", "delay": "", "": "",
	} {
		if got := meant.Word(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
