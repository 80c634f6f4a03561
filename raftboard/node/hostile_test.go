package node_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/wire"
)

// hostileCalls is the number of calls in tests of hostile calls.
func hostileCalls() int { return longtest.Rounds(1_000, 3_000) }

// vandal fills messages with values that are valid by themselves, often near a limit, and rarely
// valid together.
type vandal struct {
	*rand.Rand
	ids []string
}

func (v *vandal) text(field protoreflect.FieldDescriptor) string {
	name := string(field.Name())
	if mild := v.mildText(name); mild != nil && v.IntN(12) > 0 {
		return mild[v.IntN(len(mild))]
	}
	words := []string{"", "a", "b", "default", "night", strings.Repeat("x", 255), strings.Repeat("y", 256), "ü\u0000", "\n", "../x"}
	switch {
	case name == "id" || name == "job" || name == "session" || name == "flow" || name == "book" || name == "nonce" || name == "book_id":
		if v.IntN(10) > 0 {
			return v.ids[v.IntN(len(v.ids))]
		}
	case name == "rule":
		words = []string{"@every 1s", "@every 2562047h", "@every -1s", "@hourly", "* * * * *", "0 0 29 2 *", "0 0 31 2 *", "TZ=", "* * * * * *", "@every 876000h"}
	case name == "zone":
		words = []string{"", "UTC", "Europe/Berlin", "Local", "/etc/passwd", "../../x"}
	case name == "overlap":
		words = []string{"", "skip", "queue", "cancel", "allow"}
	case name == "missed":
		words = []string{"", "none", "last", "window"}
	case name == "action":
		words = []string{"cancel", "suspend", "resume", "retry", "purge"}
	case name == "outcome":
		words = []string{"", "success", "reverted", "failed", "cancelled"}
	case name == "state" || name == "states":
		words = []string{"", "claimable", "trashed", "completed", "running", "success", "pending", "reverted", "failure"}
	case name == "kind":
		words = []string{"", "mail", "task", "retry", "skip", "complete", "rerun", "document", "cancel"}
	case name == "after":
		words = []string{"", "a", v.ids[0], strings.Repeat("ff", 40), "zz"}
	}
	return words[v.IntN(len(words))]
}

// mildText are words that many fields accept.
func (v *vandal) mildText(name string) []string {
	switch name {
	case "id", "job", "session", "flow", "book", "nonce", "book_id", "schedule":
		return v.ids
	case "name", "key", "by", "reason", "text":
		return []string{"a", "b"}
	case "board", "boards":
		return []string{"", "default", "night"}
	case "rule":
		return []string{"@every 1s", "* * * * * *", "@hourly", "@every 876000h"}
	case "zone", "host":
		return []string{"", "UTC"}
	case "kind", "kinds", "job_kinds", "factory":
		return []string{"mail", "task"}
	case "tags", "labels":
		return []string{"t"}
	case "type", "error_type", "code", "message", "stderr", "stack", "outcome", "after", "node":
		return []string{""}
	}
	return nil
}

func (v *vandal) whole() int64 {
	if v.IntN(8) > 0 {
		return int64(v.IntN(4))
	}
	return []int64{0, 1, 2, 3, 255, 256, 1000, math.MaxInt32, math.MinInt32, -1}[v.IntN(10)]
}

// edge usually returns one of the first numbers.
func (v *vandal) edge(mild, all int) int {
	if v.IntN(10) > 0 {
		return v.IntN(mild)
	}
	return v.IntN(all)
}

func (v *vandal) scalar(field protoreflect.FieldDescriptor) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(v.text(field))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte([]string{`null`, `{"a":1}`, `1e400`, `"x"`, `2`, `3`, `4`, `5`, `6`, `[`, ``}[v.IntN(11)]))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(v.IntN(2) == 0)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind:
		return protoreflect.ValueOfInt32(int32(v.whole()))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind:
		return protoreflect.ValueOfInt64([]int64{v.whole(), math.MaxInt64, math.MinInt64}[v.IntN(3)])
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(v.whole()))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64([]uint64{uint64(v.whole()), 1, 2, math.MaxUint64}[v.edge(3, 4)])
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64([]float64{0, math.NaN(), math.Inf(1), -1}[v.IntN(4)])
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(v.IntN(4)))
	}
	panic(field.Kind())
}

func (v *vandal) fill(message protoreflect.Message, depth int) {
	switch message.Descriptor().FullName() {
	case "google.protobuf.Timestamp":
		now := time.Now().Unix()
		seconds := []int64{0, now, now + 1, now - 100, now + 100, -62135596800, 253402300799, 9223372036, 9223372037, -9223372036}[v.edge(5, 10)]
		message.Set(message.Descriptor().Fields().ByName("seconds"), protoreflect.ValueOfInt64(seconds))
		return
	case "google.protobuf.Duration":
		seconds := []int64{0, 1, 5, 100, -1, 315576000000, 9223372036, 3600, 31536000, 31536001}[v.edge(4, 10)]
		message.Set(message.Descriptor().Fields().ByName("seconds"), protoreflect.ValueOfInt64(seconds))
		return
	}
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if v.IntN(2) == 0 || (depth > 5 && field.Message() != nil) {
			continue
		}
		switch {
		case field.IsMap():
			entries := message.Mutable(field).Map()
			for range v.IntN(3) {
				key := protoreflect.ValueOfString(v.text(field)).MapKey()
				if inner := field.MapValue(); inner.Message() != nil {
					value := entries.NewValue()
					v.fill(value.Message(), depth+1)
					entries.Set(key, value)
				} else {
					entries.Set(key, v.scalar(inner))
				}
			}
		case field.IsList():
			list := message.Mutable(field).List()
			for range v.IntN(4) {
				if field.Message() != nil {
					value := list.NewElement()
					v.fill(value.Message(), depth+1)
					list.Append(value)
				} else {
					list.Append(v.scalar(field))
				}
			}
		case field.Message() != nil:
			v.fill(message.Mutable(field).Message(), depth+1)
		default:
			message.Set(field, v.scalar(field))
		}
	}
}

// TestHostileCalls: for any content, a call gets an answer other than an internal error, and the
// cluster continues.
func TestHostileCalls(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	client := c.client()
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed is %d", seed)
	v := &vandal{Rand: rand.New(rand.NewPCG(1, seed))}
	for range 12 {
		v.ids = append(v.ids, jobs.NewJobID().String())
	}
	services := conductordv1.File_conductord_v1_service_proto.Services()
	accepted := 0
	for n := range hostileCalls() {
		service := services.Get([]int{0, 0, 0, 1, 2, 3, 3, 3}[v.IntN(8)])
		method := service.Methods().Get(v.IntN(service.Methods().Len()))
		if name := method.Name(); name == "Watch" || name == "WaitJob" || name == "WaitStep" || name == "ClaimNext" && v.IntN(4) > 0 {
			continue
		}
		input := dynamicpb.NewMessage(method.Input())
		v.fill(input, 0)
		if wait := method.Input().Fields().ByName("wait"); wait != nil {
			input.Clear(wait)
		}
		body := encodeHostile(input)
		path := fmt.Sprintf("http://%s/%s/%s", c.endpoints()[0], service.FullName(), method.Name())
		answer, err := http.Post(path, "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatalf("call %d of %s: %v\n%s", n, method.Name(), err, body)
		}
		said, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			accepted++
		}
		if err != nil || answer.StatusCode == http.StatusInternalServerError || answer.StatusCode == http.StatusNotFound && len(said) == 0 {
			t.Errorf("call %d of %s is answered with %d %s (%v)\n%.2000s", n, method.Name(), answer.StatusCode, said, err, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if _, err := jobs.PostOne(t.Context(), client, jobs.Posting{Name: "last", Board: "untouched", Kind: "none"}); err != nil {
		t.Error(err)
	}
	if accepted < hostileCalls()/20 {
		t.Errorf("only %d calls of %d were accepted: the test hardly tests what happens then", accepted, hostileCalls())
	}
}

// encodeHostile writes a call as plain programs do.
func encodeHostile(message *dynamicpb.Message) []byte {
	known, err := protoregistry.GlobalTypes.FindMessageByName(message.Descriptor().FullName())
	if err != nil {
		return nil
	}
	call := known.New().Interface()
	raw, err := proto.Marshal(message)
	if err == nil {
		err = proto.Unmarshal(raw, call)
	}
	body, codecErr := wire.JSONCodec{}.Marshal(call)
	if err != nil || codecErr != nil {
		return []byte(`{"x":`)
	}
	return body
}
