package raftboard_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/valuekeys"
)

// TestValueKeysOfTheEnvironment: a program never sends plain values because nobody read CONDUCTORD_VALUE_KEYS.
func TestValueKeysOfTheEnvironment(t *testing.T) {
	for _, name := range []string{"CONDUCTORD_TOKEN", "CONDUCTORD_TOKEN_FILE", "CONDUCTORD_CA_FILE", "CONDUCTORD_CERT_FILE", "CONDUCTORD_KEY_FILE"} {
		t.Setenv(name, "")
	}
	path := filepath.Join(t.TempDir(), "keys")
	t.Setenv("CONDUCTORD_VALUE_KEYS", path)
	if _, err := raftboard.FromEnvironment(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("without the file: %v", err)
	}
	if _, err := valuekeys.Add(path, "first"); err != nil {
		t.Fatal(err)
	}
	options, err := raftboard.FromEnvironment()
	if err != nil || options.ValueKeys == nil || options.ValueKeys.Current() != "first" {
		t.Errorf("with the file: %+v, %v", options, err)
	}
}
