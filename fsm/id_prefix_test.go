package fsm_test

import (
	"fmt"
	"testing"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/boardtest"
)

// TestFindIDsIsBounded: a search reads a limited number of ids, even if few of them are visible to
// the caller.
func TestFindIDsIsBounded(t *testing.T) {
	const many, batch = 2_000, 500
	board := boardtest.New(t, boardtest.Options{})
	for first := 0; first < many; first += batch {
		postings := make([]jobs.Posting, batch)
		for i := range postings {
			id, err := jobs.ParseJobID(fmt.Sprintf("01890000-0000-7000-8000-%012x", first+i+1))
			if err != nil {
				t.Fatal(err)
			}
			postings[i] = jobs.Posting{ID: id, Name: "n", Kind: "k"}
		}
		if _, err := board.Post(t.Context(), postings...); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		prefix        string
		shown         bool
		found, asked  int
		more          bool
		firstID, last string
	}{
		{"0189", true, 10, 11, true, "01890000-0000-7000-8000-000000000001", "01890000-0000-7000-8000-00000000000a"},
		{"0189", false, 0, many, false, "", ""},
		{"01890000000070008000000000000", true, 10, 11, true, "01890000-0000-7000-8000-000000000001", "01890000-0000-7000-8000-00000000000a"},
		{"0189000000007000800000000000000", true, 10, 11, true, "01890000-0000-7000-8000-000000000001", "01890000-0000-7000-8000-00000000000a"},
		{"0189000000007000800000000000007d", true, 1, 1, false, "01890000-0000-7000-8000-00000000007d", "01890000-0000-7000-8000-00000000007d"},
		{"01890000000070008000000000000fff", true, 0, 0, false, "", ""},
		{"ffff", true, 0, 0, false, "", ""},
		{"0000007d", true, 1, 1, false, "01890000-0000-7000-8000-00000000007d", "01890000-0000-7000-8000-00000000007d"},
		{"000000000007d", true, 1, 1, false, "01890000-0000-7000-8000-00000000007d", "01890000-0000-7000-8000-00000000007d"},
		{"000000000007d", false, 0, 1, false, "", ""},
		{"7000800000000000007d", true, 1, 1, false, "01890000-0000-7000-8000-00000000007d", "01890000-0000-7000-8000-00000000007d"},
		{"00000fff", true, 0, 0, false, "", ""},
		{"000007d", true, 0, 0, false, "", ""}, // too few digits for the end of an id
	} {
		asked := 0
		prefix, err := jobs.ParseIDPrefix(jobs.IDOfJob, row.prefix)
		if err != nil {
			t.Fatal(err)
		}
		found, err := board.Machine().FindIDs(prefix, func(string, string) bool { asked++; return row.shown })
		if err != nil || len(found.IDs) != row.found || found.More != row.more || asked != row.asked {
			t.Errorf("%s: asked for %d, found %v, %v", row.prefix, asked, found, err)
		}
		if n := len(found.IDs); n > 0 && (found.IDs[0].String() != row.firstID || found.IDs[n-1].String() != row.last) {
			t.Errorf("%s: %v", row.prefix, found.IDs)
		}
	}
	// A search by the end of an id covers the latest ids, which come last.
	for _, row := range []struct {
		latest, found int
		more          bool
	}{{many, 1, false}, {many - 1, 0, true}, {1, 0, true}} {
		prefix, err := jobs.ParseIDPrefix(jobs.IDOfJob, "00000001")
		if err != nil {
			t.Fatal(err)
		}
		if found, err := fsm.FindEnds(board.Machine(), prefix, row.latest); err != nil || len(found.IDs) != row.found || found.More != row.more {
			t.Errorf("among the latest %d: %v, %v", row.latest, found, err)
		}
	}
}
