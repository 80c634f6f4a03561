package flow_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
)

func TestInner(t *testing.T) {
	const order = ` {"id": "o1", "items": [{"price": 1.50}, [true, null]], "": 1, "0": "zero", "twice": 1, "nothing": null}`
	for _, row := range []struct{ path, want, err string }{
		{"", order, ""},
		{"id", `"o1"`, ""},
		{"items.0.price", `1.50`, ""},
		{"items.1.0", `true`, ""},
		{"items.1.1", `null`, ""},
		{"0", `"zero"`, ""},
		{"items.2", "", `there is no "order.items.2": "order.items" is a list`},
		{"items.-1", "", `there is no "order.items.-1": "order.items" is a list`},
		{"items.00", "", `there is no "order.items.00": "order.items" is a list`},
		{"items.1234567890", "", `there is no "order.items.1234567890": "order.items" is a list`},
		{"items.first", "", `there is no "order.items.first": "order.items" is a list`},
		{"items.0.price.cents", "", `there is no "order.items.0.price.cents": "order.items.0.price" is a number`},
		{"items.1.0.x", "", `there is no "order.items.1.0.x": "order.items.1.0" is true or false`},
		{"id.x", "", `there is no "order.id.x": "order.id" is a string`},
		{"nothing.x", "", `there is no "order.nothing.x": "order.nothing" is null`},
		{"ID", "", `there is no "order.ID": "order" is an object`},
	} {
		got, err := flow.Inner("order", json.RawMessage(order), row.path)
		switch {
		case row.err == "" && (err != nil || string(got) != row.want):
			t.Errorf("%s: %s, %v; want %s", row.path, got, err, row.want)
		case row.err != "" && (err == nil || err.Error() != row.err):
			t.Errorf("%s: %s, error %v; want %s", row.path, got, err, row.err)
		}
	}
}

func TestCutPath(t *testing.T) {
	names := map[string]bool{"order": true, "hotel.receipt": true, "hotel": true, "a.": true}
	for reference, want := range map[string]string{
		"order": "order|", "order.id": "order|id", "order.items.0": "order|items.0", "hotel.receipt": "hotel.receipt|",
		"hotel.receipt.total": "hotel.receipt|total", "hotel.room": "hotel|room", "other.id": "other.id|", "order.": "order.|", "order..id": "order..id|",
		"": "|", ".": ".|", "a.": "a.|", "a..b": "a.|b",
	} {
		name, path := flow.CutPath(reference, func(name string) bool { return names[name] })
		if got := name + "|" + path; got != want {
			t.Errorf("%q: %s, want %s", reference, got, want)
		}
	}
}

// FuzzPaths: a reference is cut into its parts, and the value that Inner finds is a JSON value
// inside the given one.
func FuzzPaths(f *testing.F) {
	f.Add("order.items.0.price", "order", `{"items": [{"price": 1}]}`)
	f.Add("a.b.c", "a.b", `[[]]`)
	f.Add("..", ".", `null`)
	f.Fuzz(func(t *testing.T, reference, known, value string) {
		name, path := flow.CutPath(reference, func(name string) bool { return name == known })
		if path == "" && name != reference || path != "" && (name != known || name+"."+path != reference || flow.CheckPath(path) != nil) {
			t.Fatalf("%q is cut into %q and %q", reference, name, path)
		}
		if !json.Valid([]byte(value)) {
			return
		}
		inner, err := flow.Inner(name, json.RawMessage(value), path)
		if err == nil && (!json.Valid(inner) || !strings.Contains(value, strings.TrimSpace(string(inner)))) {
			t.Errorf("%q of %s is %s", path, value, inner)
		}
	})
}
