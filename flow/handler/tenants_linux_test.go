package handler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler"
)

// callOf is a call for a job of a board.
func callOf(board string) *flow.Call {
	c := call(nil)
	c.Board = board
	return c
}

// TestUsersOfBoards: handlers run as the user of the board of their job.
func TestUsersOfBoards(t *testing.T) {
	directory, places := t.TempDir(), workplaces(t)
	install(t, directory, "says", `printf '"%s"' "$(id -un) $(stat -c '%U %a' .)"`)
	option := confine(t, handler.Confinement{User: "nobody", Users: map[string]string{"a/*": "daemon", "a/b/*": "bin", "a/b/c": "sys"}}, places)
	set := open(t, directory)
	for board, user := range map[string]string{"a/1": "daemon", "a/": "daemon", "a/b/1": "bin", "a/b/c": "sys", "a/b/c/d": "bin", "a": "nobody", "b/1": "nobody", "": "nobody"} {
		result, err := set.Task("says", "", option).Execute(t.Context(), callOf(board))
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf(`"%s %s 700"`, user, user); string(result.(json.RawMessage)) != want {
			t.Errorf("the handler for the board %q says %s, want %s", board, result, want)
		}
	}
	if _, err := handler.Confine(handler.Confinement{Users: map[string]string{"a/*": "no-such-user"}}, places); err == nil || !strings.Contains(err.Error(), "for the boards a/* as the user no-such-user") {
		t.Errorf("a user that does not exist: %v", err)
	}
}

// TestHandlersOfTenants: a handler cannot read another tenant's handler that runs as another user, although
// it knows the process and the working directory. A handler of the same user can, which shows that the test
// looks in the right places.
func TestHandlersOfTenants(t *testing.T) {
	directory, places := t.TempDir(), workplaces(t)
	option := confine(t, handler.Confinement{User: "nobody", Users: map[string]string{"a/*": "daemon"}}, places)
	file := filepath.Join(places, "known") // all handlers may write to it
	if err := errors.Join(os.WriteFile(file, nil, 0o666), os.Chmod(file, 0o666)); err != nil {
		t.Fatal(err)
	}
	install(t, directory, "holds", `echo SECRET >secret; chmod 644 secret; echo "$$ $PWD" >`+file+`; exec sleep 600`)
	install(t, directory, "spies", `read pid at <`+file+`
		try() { "$@" >/dev/null 2>&1 && echo "$*" >>got; }
		opens() { exec 5<"$1"; }
		subshell() { ( "$@" ); }
		try cat $at/secret; try ls $at; try touch $at/x; try cat /proc/$pid/environ; try ls /proc/$pid/cwd/
		try subshell opens /proc/$pid/mem; try kill -0 $pid; try ls $at/..; try ls $at/../..; try mv $at/.. $at/../../y
		printf '"%s"' "$(cat got 2>/dev/null | tr '\n' ,)"`)
	set := open(t, directory)
	ctx, cancel := context.WithCancel(t.Context())
	var holding sync.WaitGroup
	holding.Go(func() { _, _ = set.Task("holds", "", option).Execute(ctx, callOf("b/1")) })
	defer holding.Wait()
	defer cancel()
	waitFor(t, "the other handler has begun", func() bool { return len(numbers(file)) > 0 })
	known, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, at, _ := strings.Cut(strings.TrimSpace(string(known)), " ")
	all := strings.NewReplacer("PID", pid, "AT", at).Replace(`"cat AT/secret,ls AT,touch AT/x,cat /proc/PID/environ,ls /proc/PID/cwd/,subshell opens /proc/PID/mem,kill -0 PID,"`)
	for board, want := range map[string]string{"a/1": `""`, "b/2": all} {
		c := callOf(board)
		result, err := set.Task("spies", "", option).Execute(t.Context(), c)
		if err != nil {
			said, _ := c.Stderr()
			t.Fatal(err, said)
		}
		if got := string(result.(json.RawMessage)); got != want {
			t.Errorf("the handler of the board %s got at %s, want %s", board, got, want)
		}
	}
}
