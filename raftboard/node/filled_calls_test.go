package node_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard/node"
)

// Size of TestFilledCalls: messages per call and principal, and depth to which it sets single
// fields.
const (
	filledCalls = 4
	setDepth    = 4
)

// notFilled is the call whose requests are a stream.
const notFilled = "Carry"

// ofMembers are administrators' calls that would change the members or the leader of the test's
// cluster.
var ofMembers = []protoreflect.Name{"AddMember", "TransferLeader"}

// logged stores the log lines of nodes.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// panics are the log lines of panics.
func (l *logged) panics() (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, "panic") || strings.Contains(line, "internal error") {
			lines = append(lines, line)
		}
	}
	return lines
}

// settings are messages of a type in which one path of fields is set, each to its zero value or an empty message.
func settings(of protoreflect.MessageDescriptor, depth int) (all []*dynamicpb.Message) {
	all = append(all, dynamicpb.NewMessage(of))
	for i := range of.Fields().Len() {
		field := of.Fields().Get(i)
		if field.IsMap() || depth == 0 && field.Message() != nil {
			continue
		}
		inner := []protoreflect.Value{field.Default()}
		if field.Message() != nil {
			inner = nil
			for _, set := range settings(field.Message(), depth-1) {
				inner = append(inner, protoreflect.ValueOfMessage(set))
			}
		}
		for _, value := range inner {
			message := dynamicpb.NewMessage(of)
			if field.IsList() {
				if field.Message() == nil {
					value = dynamicpb.NewMessage(of).NewField(field).List().NewElement()
					if field.Kind() == protoreflect.StringKind {
						value = protoreflect.ValueOfString("a")
					}
				}
				message.Mutable(field).List().Append(value)
			} else if field.Message() != nil || field.HasPresence() {
				message.Set(field, value)
			}
			all = append(all, message)
		}
	}
	return all
}

// spoilt is the wire form of a message. Sometimes it contains what our programs never write:
// invalid UTF-8, unknown enum numbers, negative durations, unknown fields, and an early end.
func spoilt(v *vandal, message proto.Message) []byte {
	body, err := proto.Marshal(message)
	if err != nil {
		return nil // text that is not UTF-8, by the vandal
	}
	switch v.IntN(8) {
	case 0:
		if len(body) > 0 {
			body[v.IntN(len(body))] ^= byte(1 + v.IntN(255))
		}
	case 1:
		body = body[:v.IntN(len(body)+1)]
	case 2:
		body = bytes.ReplaceAll(body, []byte("default"), []byte("d\xffa\xc0\xafl\xed"))
	case 3:
		number := protowire.Number(1 + v.IntN(20))
		body = protowire.AppendVarint(protowire.AppendTag(body, number, protowire.VarintType), 1<<63+uint64(v.IntN(5)))
	case 4:
		number := protowire.Number(1 + v.IntN(20))
		body = protowire.AppendBytes(protowire.AppendTag(body, number, protowire.BytesType), []byte("\xff\xff\xff\xff\xff"[:v.IntN(6)]))
	}
	return body
}

// filler sends calls and checks their answers.
type filler struct {
	*tenants
	log  *logged
	seen int // panic lines so far
}

// send makes a call and reports an answer without a stable code.
func (f *filler) send(at int, token string, method protoreflect.MethodDescriptor, body []byte) {
	f.t.Helper()
	path := fmt.Sprintf("https://%s/%s/%s", f.options[0].Members[at].API, method.Parent().FullName(), method.Name())
	kind, envelope := "application/proto", 0
	if method.IsStreamingServer() {
		kind, envelope = "application/connect+proto", 5
		body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	}
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	request.Header.Set("Content-Type", kind)
	request.Header.Set("Connect-Protocol-Version", "1")
	request.Header.Set("Connect-Timeout-Ms", "100")
	request.Header.Set("Authorization", "Bearer "+token)
	var said []byte
	answer, err := f.plain.Do(request)
	if err == nil {
		said, err = io.ReadAll(answer.Body)
		_ = answer.Body.Close()
	}
	why := ""
	switch {
	case err != nil:
		why = err.Error()
	case envelope > 0 && answer.StatusCode == http.StatusOK:
		if _, end, found := bytes.Cut(said, []byte(`{"error":`)); found && (bytes.Contains(end, []byte(`"internal"`)) || bytes.Contains(end, []byte(`"unknown"`))) {
			why = string(end)
		}
	case answer.StatusCode != http.StatusOK:
		if code := codeOf(said); code == "" || code == "internal" || code == "unknown" {
			why = string(said)
		}
	}
	if panics := f.log.panics(); len(panics) > f.seen {
		why += strings.Join(panics[f.seen:], "")
		f.seen = len(panics)
	}
	if why != "" {
		f.t.Errorf("%s at node %d is answered with %.3000s\n%x", method.FullName(), at+1, why, body)
	}
}

// codeOf is the code of a refused call: the API's code if the answer has one.
func codeOf(said []byte) string {
	var failed struct {
		Code    string
		Details []struct{ Debug struct{ Code string } }
	}
	if err := json.Unmarshal(said, &failed); err != nil {
		return ""
	}
	if len(failed.Details) > 0 {
		return failed.Details[0].Debug.Code
	}
	return failed.Code
}

// TestFilledCalls: for any content of a call by a principal of any role, no handler panics, the
// answer has a stable code, and the nodes continue.
func TestFilledCalls(t *testing.T) {
	t.Parallel()
	f := &filler{log: &logged{}}
	f.tenants = newTenants(t, 2, func(o *node.Options) {
		o.Logger = hclog.New(&hclog.LoggerOptions{Name: o.Name, Level: hclog.Warn, Output: f.log})
	})
	tokens := map[string]string{}
	for role, boards := range map[access.Role]string{access.Viewer: "night", access.Poster: "night", access.Worker: "night", access.Operator: "night", access.Administrator: access.AllBoards} {
		for name, hides := range map[string]bool{string(role): false, string(role) + "-blind": true} {
			tokens[name], _ = f.token(name, time.Time{}, access.Grant{Role: role, Boards: boards})
			if err := f.operator.SavePrincipal(t.Context(), access.Principal{Name: name, Grants: []access.Grant{{Role: role, Boards: boards}}, HideValues: hides}); err != nil {
				t.Fatal(err)
			}
		}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed is %d", seed)
	v := &vandal{Rand: rand.New(rand.NewPCG(1, seed))}
	for _, board := range []string{"night", "default"} {
		for range 6 {
			posted, err := jobs.PostOne(t.Context(), f.operator, jobs.Posting{Board: board, Name: "a", Kind: "mail"})
			if err != nil {
				t.Fatal(err)
			}
			v.ids = append(v.ids, posted.ID.String())
		}
	}
	services := conductordv1.File_conductord_v1_service_proto.Services()
	sent := 0
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			method := services.Get(i).Methods().Get(j)
			senders, callers := []string{"administrator", "administrator-blind"}, slices.Sorted(maps.Keys(tokens))
			if slices.Contains(ofMembers, method.Name()) {
				senders = []string{"operator", "worker-blind"}
				callers = slices.DeleteFunc(callers, func(name string) bool { return strings.HasPrefix(name, "administrator") })
			}
			if method.Name() == notFilled {
				continue
			}
			for _, message := range settings(method.Input(), setDepth) {
				body, err := proto.Marshal(message)
				if err != nil {
					t.Fatal(err)
				}
				f.send(sent/2%2, tokens[senders[sent%2]], method, body)
				sent++
			}
			for _, who := range callers {
				for range longtest.Rounds(1, filledCalls) {
					message := dynamicpb.NewMessage(method.Input())
					v.fill(message, 0)
					f.send(sent%2, tokens[who], method, spoilt(v, message))
					sent++
				}
			}
		}
	}
	t.Logf("%d calls", sent)
	for i, n := range f.nodes {
		if n == nil {
			t.Errorf("node %d has ended", i+1)
		}
	}
	if _, err := jobs.PostOne(t.Context(), f.operator, jobs.Posting{Name: "last", Board: "untouched", Kind: "none"}); err != nil {
		t.Error(err)
	}
}
