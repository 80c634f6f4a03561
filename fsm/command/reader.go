package command

import (
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/conductord/conductord/logbook"
)

// reader reads the fields of a message and keeps the first fault, so that a
// conversion reads as a list of fields and not as a list of checks.
type reader struct{ err error }

func (r *reader) refuse(field, format string, args ...any) {
	if r.err == nil {
		r.err = &logbook.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
	}
}

// keep records the fault of a part that was converted separately.
func keep[T any](r *reader, value T, err error) T {
	if r.err == nil {
		r.err = err
	}
	return value
}

// id reads a UUID. An empty text is an id that was never set. Check decides whether an id is
// required, because a message can contain only a part.
func (r *reader) id(field, text string) uuid.UUID {
	if text == "" {
		return uuid.Nil
	}
	id, err := logbook.ParseID(field, text)
	return keep(r, id, err)
}

const idLength = 36

// idText returns the text of an id; empty for an id that was never set.
func idText(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return id.String()
}

// idTexts are the texts of ids as idText makes them, which share memory.
func idTexts(ids [3]uuid.UUID) (texts [3]string) {
	memory := make([]byte, 0, len(ids)*idLength)
	for _, id := range ids {
		if id != uuid.Nil {
			text, _ := id.MarshalText()
			memory = append(memory, text...)
		}
	}
	all := string(memory)
	for i, id := range ids {
		if id != uuid.Nil {
			texts[i], all = all[:idLength], all[idLength:]
		}
	}
	return texts
}

// idLike is idText. It returns the given text if this is the text of the id.
func idLike(known string, id uuid.UUID) string {
	if len(known) != idLength { // uuid.Parse accepts other forms too
		return idText(id)
	}
	if same, err := uuid.Parse(known); err == nil && same == id {
		return known
	}
	return idText(id)
}

// word reads one of a set of words. An empty word was never set.
func word[T ~string](r *reader, field, text string, known func(T) bool) T {
	if text != "" && !known(T(text)) {
		r.refuse(field, "%.64q is not a word that this program knows", text)
	}
	return T(text)
}

// count reads a count. The upper limit is the maximum of an int on every machine.
func (r *reader) count(field string, n uint32) int {
	if n > math.MaxInt32 {
		r.refuse(field, "%d is larger than %d", n, math.MaxInt32)
		return 0
	}
	return int(n)
}

// countOf returns the number for a message. A number outside the range of counts becomes the
// nearest count, which the checks then refuse.
func countOf(n int) uint32 { return uint32(min(max(n, 0), math.MaxInt32)) }

// numberOf converts a number that can be negative, limited to 32 bits.
func numberOf(n int) int32 { return int32(min(max(n, math.MinInt32), math.MaxInt32)) }

// The range of times that a cluster accepts: times whose nanoseconds since 1970 are not negative
// and fit into 63 bits, because the log and the order of due times use such numbers.
var (
	earliest = time.Unix(0, 0).UTC()
	latest   = time.Unix(0, math.MaxInt64).UTC()
)

// TimeToProto converts a time. The zero time is unset.
func TimeToProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// TimeInto is TimeToProto into the message of another time, if there is one.
func TimeInto(message *timestamppb.Timestamp, t time.Time) *timestamppb.Timestamp {
	if message == nil || t.IsZero() {
		return TimeToProto(t)
	}
	message.Seconds, message.Nanos = t.Unix(), int32(t.Nanosecond())
	return message
}

// timeLike is TimeToProto, or one of the given messages that has the same time. Messages of times
// are shared, so nothing may change them.
func timeLike(t time.Time, known ...*timestamppb.Timestamp) *timestamppb.Timestamp {
	for _, other := range known {
		if other != nil && other.Seconds == t.Unix() && other.Nanos == int32(t.Nanosecond()) {
			return other
		}
	}
	return TimeToProto(t)
}

// TimeFromProto converts a time to UTC. Unset is the zero time. Times before
// 1970 or after April 2262 are refused in the name of the field.
func TimeFromProto(field string, stamp *timestamppb.Timestamp) (time.Time, error) {
	if stamp == nil {
		return time.Time{}, nil
	}
	t := stamp.AsTime()
	if stamp.CheckValid() != nil || t.Before(earliest) || t.After(latest) {
		return time.Time{}, &logbook.InvalidError{Field: field, Reason: fmt.Sprintf(
			"%d s and %d ns after 1970 is not a time between %s and %s", stamp.Seconds, stamp.Nanos,
			earliest.Format(time.DateOnly), latest.Format(time.DateOnly))}
	}
	return t, nil
}

func (r *reader) time(field string, stamp *timestamppb.Timestamp) time.Time {
	t, err := TimeFromProto(field, stamp)
	return keep(r, t, err)
}

// DurationToProto converts a duration. Zero is unset.
func DurationToProto(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// DurationFromProto converts a duration. Unset is zero. It refuses a duration outside the range of
// time.Duration, about 292 years, with the name of the field.
func DurationFromProto(field string, d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	value := d.AsDuration()
	// AsDuration saturates; the conversion back shows whether it did.
	if back := durationpb.New(value); d.CheckValid() != nil || back.Seconds != d.Seconds || back.Nanos != d.Nanos {
		return 0, &logbook.InvalidError{Field: field, Reason: fmt.Sprintf(
			"%d s and %d ns is not a duration", d.Seconds, d.Nanos)}
	}
	return value, nil
}

func (r *reader) duration(field string, d *durationpb.Duration) time.Duration {
	value, err := DurationFromProto(field, d)
	return keep(r, value, err)
}
