// Command guards shows that a test covers each guard of the product: it removes one guard after
// the other from a copy of its file, runs the guard's test against that copy, and reports a
// guard whose test still passes.
//
// The compiler reads the copy through its -overlay option, so the product contains no switches, and
// nothing in the tree changes.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "check the guard of this name alone")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var chosen []guard
	for _, g := range guards {
		if *only == "" || g.name == *only {
			chosen = append(chosen, g)
		}
	}
	held, missed := 0, 0
	for i, outcome := range checkAll(ctx, chosen) {
		g, o := chosen[i], <-outcome
		if o.err != nil {
			missed++
			fmt.Printf("MISSED  %-18s %s\n", g.name, o.err)
			continue
		}
		held++
		fmt.Printf("held    %-18s by %s %s (%.0f s)\n", g.name, g.pkg, g.test, o.took.Seconds())
	}
	fmt.Printf("%d passed, %d failed\n", held, missed)
	if missed > 0 || held == 0 {
		os.Exit(1)
	}
}

type outcome struct {
	err  error
	took time.Duration
}

// checkAll checks one guard per processor, because a single build or waiting test leaves
// processors idle. The channels are in the order of the guards, and each gets one outcome.
func checkAll(ctx context.Context, chosen []guard) []chan outcome {
	outcomes := make([]chan outcome, len(chosen))
	free := make(chan struct{}, runtime.NumCPU())
	for i, g := range chosen {
		outcomes[i] = make(chan outcome, 1)
		go func() {
			free <- struct{}{}
			defer func() { <-free }()
			began := time.Now()
			err := g.check(ctx)
			outcomes[i] <- outcome{err, time.Since(began)}
		}()
	}
	return outcomes
}

// check removes the guard and requires the test itself to report a failure: a copy that does
// not build, or a missing test, proves nothing.
func (g guard) check(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "conductord-guard-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := g.overlay(dir)
	if err != nil {
		return err
	}
	test := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-count=1", "-vet=off", "-timeout=5m",
		"-run", "^"+g.test+"$"+g.row, "./"+g.pkg)
	output, err := test.CombinedOutput()
	switch {
	case err == nil:
		return fmt.Errorf("%s %s passes without it", g.pkg, g.test)
	case !strings.Contains(string(output), "--- FAIL: "+g.test):
		return fmt.Errorf("%s %s did not run: %w\n%s", g.pkg, g.test, err, output)
	}
	return nil
}

// overlay writes the file without the guard, and the list that makes the
// compiler read it.
func (g guard) overlay(dir string) (string, error) {
	without, err := g.without()
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, filepath.Base(g.file))
	if err := os.WriteFile(changed, []byte(without), 0o600); err != nil {
		return "", err
	}
	original, err := filepath.Abs(g.file)
	if err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}

// without is the text of the file without the guard.
func (g guard) without() (string, error) {
	source, err := os.ReadFile(g.file)
	if err != nil {
		return "", fmt.Errorf("cannot read the guard: run this from the top of the module: %w", err)
	}
	if n := strings.Count(string(source), g.keep); n != 1 {
		return "", fmt.Errorf("%s has %q %d times, and should have it once: has the guard changed?", g.file, g.keep, n)
	}
	return strings.Replace(string(source), g.keep, g.remove, 1), nil
}
