package jobs_test

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// FuzzIDPrefix: a prefix of an id matches the id if it has enough digits, in either case and with
// or without dashes. Accepted prefixes are within the limits; all others are refused.
func FuzzIDPrefix(f *testing.F) {
	id := uuid.MustParse("0190b7f3-8f7e-7c3a-9d2e-5b1f0c7a4e21")
	f.Add(id[:], 8, "0190")
	f.Add(id[:], 9, "0190b7f3-")
	f.Add(id[:], 36, "----------------------------------abcd")
	f.Add(id[:], 3, "0190b7f38f7e7c3a9d2e5b1f0c7a4e210")
	f.Add(id[:], 4, "ſKéa")
	f.Fuzz(func(t *testing.T, bytes []byte, length int, text string) {
		var id uuid.UUID
		copy(id[:], bytes)
		whole := id.String()
		beginning := whole[:max(0, min(length, len(whole)))]
		digits := strings.ReplaceAll(beginning, "-", "")
		for _, written := range []string{beginning, strings.ToUpper(beginning), digits} {
			prefix, err := jobs.ParseIDPrefix(jobs.IDOfJob, written)
			if enough := len(digits) >= jobs.MinIDPrefix; enough != (err == nil) {
				t.Fatalf("%q: %v", written, err)
			}
			if err == nil && !strings.HasPrefix(hex.EncodeToString(id[:]), prefix.Digits) {
				t.Fatalf("%q of %s became %q", written, id, prefix.Digits)
			}
		}
		prefix, err := jobs.ParseIDPrefix(jobs.IDOfFlow, text)
		if err != nil {
			if !errors.Is(err, logbook.ErrInvalid) || !strings.Contains(err.Error(), "flow id") || len(err.Error()) > 1000 {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		padded := prefix.Digits + strings.Repeat("0", max(0, 2*len(id)-len(prefix.Digits)))
		if decoded, err := hex.DecodeString(padded); err != nil || len(decoded) != len(id) || len(prefix.Digits) < jobs.MinIDPrefix {
			t.Fatalf("%q became %q", text, prefix.Digits)
		}
	})
}
