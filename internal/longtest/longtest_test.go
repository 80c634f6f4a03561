package longtest_test

import (
	"flag"
	"testing"

	"github.com/conductord/conductord/internal/longtest"
)

// TestChoice checks that long tests run with the variable or with -run, and only then.
func TestChoice(t *testing.T) {
	run := flag.Lookup("test.run")
	before := run.Value.String()
	t.Cleanup(func() { _ = run.Value.Set(before) })
	for _, row := range []struct {
		variable, run string
		all           bool
	}{
		{"", "", false}, {"some", "", false}, {"all", "", true}, {"", "TestChoice", true},
	} {
		t.Setenv(longtest.Variable, row.variable)
		if err := run.Value.Set(row.run); err != nil {
			t.Fatal(err)
		}
		rounds := longtest.Rounds(1, 5)
		var skipped bool
		t.Run("long", func(t *testing.T) {
			defer func() { skipped = t.Skipped() }()
			longtest.Skip(t)
		})
		if longtest.All() != row.all || skipped == row.all || (rounds == 5) != row.all {
			t.Errorf("%+v: all %t, skipped %t, %d rounds", row, longtest.All(), skipped, rounds)
		}
	}
}

// TestAtOnce: a package sets the number of parallel tests, unless -parallel sets it.
func TestAtOnce(t *testing.T) {
	parallel := flag.Lookup("test.parallel")
	before := parallel.Value.String()
	t.Cleanup(func() { _ = parallel.Value.Set(before) })
	for _, row := range []struct{ given, want string }{{parallel.DefValue, "7777"}, {"5555", "5555"}} {
		if err := parallel.Value.Set(row.given); err != nil {
			t.Fatal(err)
		}
		if longtest.AtOnce(7777); parallel.Value.String() != row.want {
			t.Errorf("-parallel is %s, and was %s", parallel.Value, row.given)
		}
	}
}
