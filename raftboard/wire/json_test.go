package wire_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
)

func value(text string) *v1.Value { return &v1.Value{Json: []byte(text)} }

// formed are messages and their JSON, valid in both directions.
var formed = []struct {
	name    string
	message proto.Message
	json    string
}{
	{"nothing", &v1.Posting{}, `{}`},
	{"names as in the proto", &v1.GetFlowRequest{Id: "a", Skip: 3, Stale: true}, `{"id":"a","skip":3,"stale":true}`},
	{"value", &v1.Posting{Details: value(`{"b":1,"a":[true,null]}`)}, `{"details":{"b":1,"a":[true,null]}}`},
	{"value keeps its bytes", &v1.Posting{Details: value(`{ "z" : 1.50 , "a":12345678901234567890123 }`)},
		`{"details":{ "z" : 1.50 , "a":12345678901234567890123 }}`},
	{"null", &v1.Posting{Details: value(`null`)}, `{"details":null}`},
	{"null among named values", &v1.Posting{Store: []*v1.NamedValue{{Name: "x", Value: value(`null`)}}}, `{"store":{"x":null}}`},
	{"value that looks like a wrapped one", &v1.Posting{Details: value(`{"json":"bnVsbA=="}`)}, `{"details":{"json":"bnVsbA=="}}`},
	{"strings with quotes and brackets", &v1.Posting{Name: `a"}]\`, Details: value(`"\"}]"`)}, `{"name":"a\"}]\\","details":"\"}]"}`},
	{"name with quotes", &v1.Posting{Store: []*v1.NamedValue{{Name: `"{`, Value: value(`1`)}}}, `{"store":{"\"{":1}}`},
	{"several named values", &v1.Posting{Store: []*v1.NamedValue{{Name: "b", Value: value(`[1, 2]`)}, {Value: value(`"empty name"`)}, {Name: "a", Value: value(`{"z":0}`)}}}, `{"store":{"b":[1, 2],"":"empty name","a":{"z":0}}}`},
	{"deep in lists, maps and messages",
		&v1.PostRequest{Postings: []*v1.Posting{{Book: &v1.Book{Flows: []*v1.FlowDetail{{
			Factory: &v1.Factory{Name: "f", Args: value(`[1]`)}, Store: []*v1.NamedValue{{Name: "k", Value: value(`"v"`)}},
		}}}}, {Details: value(`2`)}}},
		`{"postings":[{"book":{"flows":[{"factory":{"name":"f","args":[1]},"store":{"k":"v"}}]}},{"details":2}]}`},
	{"oneof", &v1.ExecuteRequest{Commands: []*v1.Command{{Kind: &v1.Command_SaveBook{SaveBook: &v1.Book{Meta: []*v1.NamedValue{{Name: "m", Value: value(`{}`)}}}}}}},
		`{"commands":[{"save_book":{"meta":{"m":{}}}}]}`},
	{"times and counters", &v1.Job{PostedAt: &timestamppb.Timestamp{Seconds: 1}, Sequence: 1 << 60},
		`{"sequence":"1152921504606846976","posted_at":"1970-01-01T00:00:01Z"}`},
	{"map of numbers", &v1.StatusResponse{Jobs: map[string]uint64{"claimed": 2}}, `{"jobs":{"claimed":"2"}}`},
	{"token", &v1.Job{Token: &v1.Token{Generation: 1, Index: 1 << 60}}, `{"token":"1-1152921504606846976"}`},
	{"zero token", &v1.Job{Token: &v1.Token{}}, `{"token":"0-0"}`},
	{"no token", &v1.Job{}, `{}`},
	{"position", &v1.WatchRequest{After: &v1.Position{Index: 7}}, `{"after":"7-0"}`},
	{"positions in a list", &v1.WatchResponse{Events: []*v1.Event{{Position: &v1.Position{Index: 7, Item: 2}}}}, `{"events":[{"position":"7-2"}]}`},
	{"value alone", value(`[1,2]`), `[1,2]`},
}

func TestJSONBothWays(t *testing.T) {
	for _, test := range formed {
		t.Run(test.name, func(t *testing.T) {
			text, err := wire.JSONCodec{}.Marshal(test.message)
			if err != nil || string(text) != test.json {
				t.Errorf("Marshal gives %s, %v; want %s", text, err, test.json)
			}
			read := test.message.ProtoReflect().New().Interface()
			if err := (wire.JSONCodec{}).Unmarshal([]byte(test.json), read); err != nil || !proto.Equal(read, test.message) {
				t.Errorf("Unmarshal gives %v, %v; want %v", read, err, test.message)
			}
			if err := wire.ValueFault([]byte(test.json), read); err != nil {
				t.Errorf("a fault in accepted data: %v", err)
			}
		})
	}
}

func TestJSONOneWay(t *testing.T) {
	tests := []struct {
		name, json string
		want       proto.Message
	}{
		{"lowerCamelCase", `{"notBefore":"1970-01-01T00:00:01Z","bookId":"b"}`, &v1.Posting{NotBefore: &timestamppb.Timestamp{Seconds: 1}, BookId: "b"}},
		{"white space everywhere", " { \"name\" : \"n\" ,\n\t\"details\" :  [ 1 ]  } \r\n", &v1.Posting{Name: "n", Details: value(`[ 1 ]`)}},
		{"null for a message", `{"book":null}`, &v1.Posting{}},
		{"escaped name", `{"n\u0061me":"n"}`, &v1.Posting{Name: "n"}},
		{"number as a number", `{"sequence":7}`, &v1.Job{Sequence: 7}},
	}
	for _, test := range tests {
		read := test.want.ProtoReflect().New().Interface()
		if err := (wire.JSONCodec{}).Unmarshal([]byte(test.json), read); err != nil || !proto.Equal(read, test.want) {
			t.Errorf("%s: got %v, %v; want %v", test.name, read, err, test.want)
		}
	}
}

func TestJSONRefused(t *testing.T) {
	tests := []struct {
		name, json string
		kind       error
		says       string
	}{
		{"empty", " ", logbook.ErrInvalid, "empty"},
		{"cut off", `{"name":"`, logbook.ErrInvalid, "at byte 9"},
		{"two values", `{} {}`, logbook.ErrInvalid, "at byte 4"},
		{"garbage in a value", `{"details":{x}}`, logbook.ErrInvalid, "not JSON"},
		{"unknown field", `{"nmae":"n"}`, logbook.ErrInvalid, `"nmae"`},
		{"unknown field deep inside", `{"book":{"flows":[{"factry":{}}]}}`, logbook.ErrInvalid, `"factry"`},
		{"field twice", `{"book_id":"a","bookId":"b"}`, logbook.ErrInvalid, "duplicate"},
		{"name twice", `{"store":{"a":1,"b":2,"a":3}}`, logbook.ErrInvalid, "duplicate"},
		{"wrong type", `{"name":1}`, logbook.ErrInvalid, "name"},
		{"object for a list", `{"book":{"flows":{}}}`, logbook.ErrInvalid, ""},
		{"list for named values", `{"store":[]}`, logbook.ErrInvalid, ""},
		{"not an object", `7`, logbook.ErrInvalid, ""},
		{"too deep", strings.Repeat("[", wire.MaxJSONDepth+1), logbook.ErrLimit, "levels"},
		{"too deep in a value", `{"details":` + strings.Repeat("[", wire.MaxJSONDepth) + strings.Repeat("]", wire.MaxJSONDepth) + `}`, logbook.ErrLimit, "levels"},
	}
	for _, test := range tests {
		err := wire.JSONCodec{}.Unmarshal([]byte(test.json), new(v1.Posting))
		if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want %v that says %q", test.name, err, test.kind, test.says)
		}
	}
}

// TestJSONValuesRefused: the error names the field and its limit or type, in our words.
func TestJSONValuesRefused(t *testing.T) {
	for json, want := range map[string]string{
		`{"priority":3000000000}`:           "priority is invalid: 3000000000 is not a whole number from -2147483648 to 2147483647",
		`{"priority":"-3000000000"}`:        `priority is invalid: "-3000000000" is not a whole number from -2147483648 to 2147483647`,
		`{"priority":"high"}`:               `priority is invalid: "high" is not a whole number from -2147483648 to 2147483647`,
		`{"priority":1.5}`:                  "priority is invalid: 1.5 is not a whole number from -2147483648 to 2147483647",
		`{"priority":1e10}`:                 "priority is invalid: 1e10 is not a whole number from -2147483648 to 2147483647",
		`{"priority":[1]}`:                  "priority is invalid: a list is not a whole number from -2147483648 to 2147483647",
		`{"max_crashes":-1}`:                "max_crashes is invalid: -1 is not a whole number from 0 to 4294967295",
		`{"maxCrashes":4294967296}`:         "max_crashes is invalid: 4294967296 is not a whole number from 0 to 4294967295",
		`{"retry":{"attempts":true}}`:       "attempts is invalid: true is not a whole number from 0 to 4294967295",
		`{"hold":"yes"}`:                    `hold is invalid: "yes" is not true or false`,
		`7`:                                 "request is invalid: 7 is not an object",
		`{"hold":1}`:                        "hold is invalid: 1 is not true or false",
		`{"name":1}`:                        "name is invalid: 1 is not text",
		`{"name":{"a":"b"}}`:                "name is invalid: an object is not text",
		`{"tags":"a"}`:                      `tags is invalid: "a" is not a list`,
		`{"tags":["a",null]}`:               "tags is invalid: null is not text",
		`{"book":[]}`:                       "book is invalid: a list is not an object",
		`{"book":{"flows":{}}}`:             "flows is invalid: an object is not a list",
		`{"book":{"flows":[{"id":"a"},7]}}`: "flows is invalid: 7 is not an object",
		`{"not_before":"tomorrow"}`:         `not_before is invalid: "tomorrow" is not a time such as "2026-01-31T15:04:05Z"`,
		`{"not_before":1790000000}`:         `not_before is invalid: 1790000000 is not a time such as "2026-01-31T15:04:05Z"`,
		`{"retry":{"delay":"10m"}}`:         `delay is invalid: "10m" is not a duration in seconds such as "1.5s"`,
	} {
		err := wire.JSONCodec{}.Unmarshal([]byte(json), new(v1.Posting))
		if !errors.Is(err, logbook.ErrInvalid) || err.Error() != want {
			t.Errorf("%s: got %v, want %s", json, err, want)
		}
	}
	for json, want := range map[string]string{
		`{"sequence":18446744073709551616}`: "sequence is invalid: 18446744073709551616 is not a whole number from 0 to 18446744073709551615",
		`{"sequence":-1}`:                   "sequence is invalid: -1 is not a whole number from 0 to 18446744073709551615",
	} {
		if err := (wire.JSONCodec{}).Unmarshal([]byte(json), new(v1.Job)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", json, err, want)
		}
	}
}

// TestJSONNumbersAccepted: a whole number in any form that protojson accepts.
func TestJSONNumbersAccepted(t *testing.T) {
	for _, text := range []string{"-7", `"-7"`, "-7.0", "-0.7e1", `"-70e-1"`, "-700000000000000000000e-20"} {
		var read v1.Posting
		data := []byte(`{"priority":` + text + `}`)
		if err := (wire.JSONCodec{}).Unmarshal(data, &read); err != nil || read.Priority != -7 || wire.ValueFault(data, &read) != nil {
			t.Errorf("%s: got %d, %v, %v", text, read.Priority, err, wire.ValueFault(data, &read))
		}
	}
}

func TestJSONDepthAtTheLimit(t *testing.T) {
	deep := strings.Repeat("[", wire.MaxJSONDepth-1) + strings.Repeat("]", wire.MaxJSONDepth-1)
	var read v1.Posting
	if err := (wire.JSONCodec{}).Unmarshal([]byte(`{"details":`+deep+`}`), &read); err != nil || string(read.GetDetails().GetJson()) != deep {
		t.Errorf("got %v, want the value as it is", err)
	}
}

func TestJSONOfBadValues(t *testing.T) {
	if text, err := (wire.JSONCodec{}).Marshal(&v1.Posting{Details: value(`{x`)}); err == nil {
		t.Errorf("a value that is not JSON was written: %s", text)
	}
	if text, err := (wire.JSONCodec{}).Marshal(&v1.Posting{Details: &v1.Value{}}); err != nil || string(text) != `{"details":null}` {
		t.Errorf("an empty value was written as %s, %v", text, err)
	}
	if _, err := (wire.JSONCodec{}).Marshal("text"); err == nil {
		t.Error("what is no message was written")
	}
	if err := (wire.JSONCodec{}).Unmarshal([]byte("{}"), "text"); err == nil {
		t.Error("what is no message was read")
	}
}

// FuzzJSON: accepted input has no fault, and is written as JSON that decodes to the same message.
func FuzzJSON(f *testing.F) {
	for _, test := range formed {
		f.Add([]byte(test.json))
	}
	f.Add([]byte(`{"postings":[{"store":{"a":{"b":[1,2,{"c":null}]}}}]}`))
	f.Add([]byte(`{"postings":[{"tags":["a"],"retry":{"delay":"1s","attempts":3},"priority":3000000000}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var first, second v1.PostRequest
		if (wire.JSONCodec{}).Unmarshal(data, &first) != nil {
			return
		}
		if err := wire.ValueFault(data, &first); err != nil {
			t.Fatalf("read, and has a fault: %v", err)
		}
		text, err := wire.JSONCodec{}.Marshal(&first)
		if err != nil {
			t.Fatalf("read but cannot be written: %v", err)
		}
		if !json.Valid(text) {
			t.Fatalf("not JSON: %q", text)
		}
		if err := (wire.JSONCodec{}).Unmarshal(text, &second); err != nil || !proto.Equal(&first, &second) {
			t.Fatalf("%q reads as %v, %v; want %v", text, &second, err, &first)
		}
	})
}

func TestJSONTokensAreText(t *testing.T) {
	for _, text := range []string{`{"generation":1,"index":2}`, `"1"`, `"1-2-3"`, `"1--2"`, `"a-b"`, `""`, `12`, `"18446744073709551616-1"`} {
		err := wire.JSONCodec{}.Unmarshal([]byte(`{"token":`+text+`}`), new(v1.Job))
		if !errors.Is(err, logbook.ErrInvalid) || !strings.Contains(err.Error(), "GENERATION-INDEX") {
			t.Errorf("%s: got %v", text, err)
		}
	}
	read := &v1.Job{}
	if err := (wire.JSONCodec{}).Unmarshal([]byte(`{"token":null}`), read); err != nil || read.Token != nil {
		t.Errorf("null: got %v, %v", read, err)
	}
}
