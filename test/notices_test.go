package test

import (
	"debug/buildinfo"
	"os/exec"
	"strings"
	"testing"
)

// The notices in the packages have the licence of each module in the binary.
func TestNoticesNameEachModule(t *testing.T) {
	t.Parallel()
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	text, err := exec.CommandContext(within(t), "go", "run", modulePath+"/deploy/notices", binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range info.Deps {
		if !strings.Contains(string(text), "\n"+module.Path+" "+module.Version+": ") {
			t.Errorf("the licence of %s is missing", module.Path)
		}
	}
	for _, words := range []string{"Mozilla Public License", "Apache License", "Redistribution and use", "Permission is hereby granted", "The Go Authors"} {
		if !strings.Contains(string(text), words) {
			t.Errorf("no licence has the words %q", words)
		}
	}
}
