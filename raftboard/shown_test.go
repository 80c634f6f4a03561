package raftboard_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/conductord/conductord/raftboard"
)

// TestEveryCallIsShown: every method of a client is used in an example, which is compiled and run.
func TestEveryCallIsShown(t *testing.T) {
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	client := reflect.TypeFor[*raftboard.Client]()
	for i := range client.NumMethod() {
		if name := client.Method(i).Name; !strings.Contains(string(examples), "client."+name+"(") {
			t.Errorf("no example shows Client.%s", name)
		}
	}
}
