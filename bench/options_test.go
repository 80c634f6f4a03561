package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestChoose(t *testing.T) {
	for _, row := range []struct {
		patterns string
		chosen   []string
		unknown  []string
	}{
		{"", names(), nil},
		{"post-64", []string{"post-64"}, nil},
		{"post-*,idle", []string{"idle", "post-1", "post-16x100", "post-64"}, nil},
		{"fill/post-*", []string{"fill/post-1", "fill/post-16x100", "fill/post-64"}, nil},
		{"*", slices.DeleteFunc(names(), func(name string) bool { return strings.HasPrefix(name, fillPrefix) }), nil},
		{"post-64,posts,[", []string{"post-64"}, []string{"posts", "["}},
	} {
		chosen, unknown := choose(row.patterns)
		if len(chosen) != len(row.chosen) || !slices.Equal(unknown, row.unknown) {
			t.Errorf("%q chooses %v, and does not know %v", row.patterns, chosen, unknown)
		}
		for _, name := range row.chosen {
			if !chosen[name] {
				t.Errorf("%q does not choose %s", row.patterns, name)
			}
		}
	}
	if got := (wanted{"fill/post-64": true, "post-1": true}).works(fillPrefix); len(got) != 1 || got[0].name != "post-64" {
		t.Errorf("works among many jobs: %v", got)
	}
}

func TestOptions(t *testing.T) {
	for _, row := range []struct {
		args                   string
		pairs, fill, fillPairs int
		window                 time.Duration
		stores                 string
	}{
		{"", 5, 100_000, 2, 2 * second, "bolt"},
		{"-full", 5, 1_000_000, 5, 4 * second, "bolt,wal"},
		{"-full -fill 5000 -pairs 2 -window 1s -log-store wal", 2, 5_000, 5, second, "wal"},
		{"-fill 0 -log-store wal,bolt", 5, 0, 2, 2 * second, "wal,bolt"},
	} {
		o, err := parseOptions(strings.Fields(row.args))
		if err != nil || o.Pairs != row.pairs || o.Fill != row.fill || o.FillPairs != row.fillPairs || o.Window != row.window || strings.Join(o.LogStores, ",") != row.stores {
			t.Errorf("%q: %+v, %v", row.args, o, err)
		}
	}
	for _, args := range []string{
		"-pairs 0", "-pairs 101", "-fill 1000", "-fill 10000001", "-fill-pairs 0", "-restarts 0", "-window 99ms", "-warm 58s -window 3s", "-warm -1s",
		"-idle 10ms", "-idle 11m", "-o xml", "-log-store paper", "-log-store wal,wal", "-only posts", "extra",
	} {
		if _, err := parseOptions(strings.Fields(args)); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

func TestThisMachine(t *testing.T) {
	if m := thisMachine(); m.Processors < 1 || m.System == "" || m.Go == "" || m.Model == "" {
		t.Errorf("%+v", m)
	}
}
