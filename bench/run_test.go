package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/bench/bareraft"
	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/internal/longtest"
)

// TestMain lets this program run as a process of the floor, like the real program.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == floorMode {
		if err := bareraft.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestRun does every work briefly, and checks that everything is measured. The figures do not
// matter.
func TestRun(t *testing.T) {
	longtest.Skip(t)
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	defer cancel()
	dir := t.TempDir()
	binary := filepath.Join(dir, "conductord")
	if err := local.Build(ctx, binary); err != nil {
		t.Fatal(err)
	}
	r := measured(ctx, t, binary, "-fill 2000 -fill-pairs 1 -idle 1s -restarts 1 -waits 300 -window 600ms -log-store bolt,wal -only *,fill/claim-16,fill/read-64")
	if len(r.Works) != 2*len(works())+2 {
		t.Errorf("%d works", len(r.Works))
	}
	for _, w := range r.Works {
		if len(w.Pairs) == 1 && (w.Pairs[0].Ours.Operations == 0 || w.Against != "" && w.Pairs[0].Other.Operations == 0) && slices.Contains(names(), w.Name) {
			// A busy machine can end no operation in a short window.
			w = measured(ctx, t, binary, "-window 10s -log-store "+w.LogStore+" -only "+w.Name).Works[0]
		}
		if len(w.Pairs) != 1 {
			t.Errorf("%s: %d pairs", w.Name, len(w.Pairs))
			continue
		}
		ours, other := w.Pairs[0].Ours, w.Pairs[0].Other
		if ours.Operations == 0 || ours.P50 <= 0 || ours.P999 < ours.P50 || ours.Cost.Leader.CPU <= 0 || ours.Cost.Leader.Allocations <= 0 || len(w.Goals) == 0 {
			t.Errorf("%s: ours %+v, goals %v", w.Name, ours, w.Goals)
		}
		reads := strings.HasPrefix(w.Name, "read-64")
		if !reads && (ours.Cost.Entries <= 0 || ours.Cost.Commands <= 0 || ours.Cost.Bytes <= 0 || ours.Cost.Leader.LogWrites <= 0 || ours.Cost.Followers.LogWrites <= 0) {
			t.Errorf("%s: it has cost %+v", w.Name, ours.Cost)
		}
		if w.Against != "" && (other.Operations == 0 || other.Cost.Leader.CPU <= 0 || w.Pairs[0].Ratio <= 0) {
			t.Errorf("%s: %s %+v, ratio %v", w.Name, w.Against, other, w.Pairs[0].Ratio)
		}
	}
	if len(r.Figures) < 12 {
		t.Errorf("%d figures: %+v", len(r.Figures), r.Figures)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("it has left %v behind (%v)", left, err)
	}
}

// measured does works with one pair each, and returns the report.
func measured(ctx context.Context, t *testing.T, binary, args string) (r report) {
	t.Helper()
	o, err := parseOptions(strings.Fields("-pairs 1 -warm 100ms -o json -dir " + filepath.Dir(binary) + " -binary " + binary + " " + args))
	if err != nil {
		t.Fatal(err)
	}
	o.settle, o.snapshotDue = 100*time.Millisecond, 500*time.Millisecond
	var out bytes.Buffer
	if err := measureAll(ctx, o, &out); err != nil {
		t.Error(err)
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || len(r.Works) == 0 {
		t.Fatalf("the report has %d works: %v", len(r.Works), err)
	}
	return r
}

// TestRunGoesOn checks that a work that cannot be measured is reported, and that the run still
// writes its report.
func TestRunGoesOn(t *testing.T) {
	var out bytes.Buffer
	dir := t.TempDir()
	err := run(t.Context(), []string{"-pairs", "2", "-only", "post-1,read-64,fill/post-1", "-dir", dir, "-binary", filepath.Join(dir, "none")}, &out)
	if err == nil {
		t.Error("nothing could be measured, and that is no error")
	}
	for _, want := range []string{"post-1: pair 1: cannot start", "read-64: pair 2: cannot start", "the cluster for many jobs: cannot start"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
}
