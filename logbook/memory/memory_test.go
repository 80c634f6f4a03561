package memory_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/logbooktest"
	"github.com/conductord/conductord/logbook/memory"
)

func TestConformance(t *testing.T) {
	logbooktest.Exercise(t, func(*testing.T) logbook.Connection { return memory.New(logbook.MaxLimits) })
}

func TestLimitsGoDownwardOnly(t *testing.T) {
	const name = "a name of 22 bytes ..." // 22 bytes
	for _, row := range []struct {
		what   string
		limits logbook.Limits
		want   error
	}{
		{"zero means the largest", logbook.Limits{}, nil},
		{"at the limit", logbook.Limits{Name: len(name)}, nil},
		{"over the limit", logbook.Limits{Name: len(name) - 1}, logbook.ErrLimit},
		{"a command that is too small for the book", logbook.Limits{Command: 64}, logbook.ErrLimit},
		{"more than the largest is the largest", logbook.Limits{Name: 1 << 20}, nil},
	} {
		t.Run(row.what, func(t *testing.T) {
			conn := memory.New(row.limits)
			err := conn.SaveBook(t.Context(), logbook.Book{ID: logbook.NewBookID(), Name: name})
			if !errors.Is(err, row.want) {
				t.Errorf("got error %v, want %v", err, row.want)
			}
		})
	}
	long := logbook.Book{ID: logbook.NewBookID(), Name: string(make([]byte, 300)), Meta: logbook.Values{"v": json.RawMessage(`1`)}}
	if err := memory.New(logbook.Limits{Name: 1000}).SaveBook(t.Context(), long); !errors.Is(err, logbook.ErrLimit) {
		t.Errorf("a limit was raised: got error %v, want %v", err, logbook.ErrLimit)
	}
}
