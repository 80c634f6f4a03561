package node_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/topology"
)

// namesBoard sets all fields of a request that name boards, up to a depth, and reports whether
// there is one. It sets no field of a oneof: see eachCommand.
func namesBoard(m protoreflect.Message, board string, depth int) (named bool) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch inner := field.Message(); {
		case field.Name() == "board" && field.Kind() == protoreflect.StringKind:
			m.Set(field, protoreflect.ValueOfString(board))
			named = true
		case field.Name() == "boards" && field.IsList():
			m.Mutable(field).List().Append(protoreflect.ValueOfString(board))
			named = true
		case inner == nil || inner.ParentFile() != m.Descriptor().ParentFile() && depth == 0 || field.ContainingOneof() != nil && !field.HasOptionalKeyword() || field.IsMap():
		case field.IsList():
			if item := m.NewField(field).List().NewElement(); depth > 0 && namesBoard(item.Message(), board, depth-1) {
				m.Mutable(field).List().Append(item)
				named = true
			}
		default:
			if item := m.NewField(field); depth > 0 && namesBoard(item.Message(), board, depth-1) {
				m.Set(field, item)
				named = true
			}
		}
	}
	return named
}

// answeredElsewhere are the calls that can name a board of another cluster, with the reasons.
var answeredElsewhere = map[string]string{
	"BoardService/Post":        "each posting is forwarded, and has a verdict of its own",
	"BoardService/ClaimNext":   "a conductor waits on several boards",
	"BoardService/CreateBoard": "a board that changes clusters is made before the topology says so",
	"SessionService/Register":  "a conductor tells of all boards from which it claims",
	"WorkerService/Report":     "the record has an answer to each signal of a step",
	"WorkerService/Offer":      "the leader takes the board of the work from its job",
}

// TestBoardsElsewhereAreRefused makes every call of the API that names a board, at a cluster
// that does not have the board: the refusal names the cluster that does. A new call is found by
// its request.
func TestBoardsElsewhereAreRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "topology.toml")
	text := "default = \"here\"\n[clusters.here]\nid = \"test\"\nservers = [\"127.0.0.1:1\"]\n[clusters.there]\nservers = [\"127.0.0.1:2\"]\n[boards]\n\"mail/*\" = \"there\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := topology.Open(topology.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, 1, func(o *node.Options) { o.Topology = source }).startAll()
	call := func(name string, request protoreflect.Message) string {
		body, err := protojson.Marshal(request.Interface())
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.Post("http://"+c.options[0].Members[0].API+"/conductord.v1."+name, "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		said, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(said)
	}
	refused := func(what, answer string) {
		t.Helper()
		if !strings.Contains(answer, "wrong_cluster") || !strings.Contains(answer, `in cluster \"there\": call that cluster at 127.0.0.1:2`) {
			t.Errorf("%s: %s", what, answer)
		}
	}
	job, err := jobs.PostOne(t.Context(), c.client(c.leader()), jobs.Posting{ID: jobs.NewJobID(), Name: "one", Kind: "k"})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{"BoardService/Change": "job", "LogbookService/SaveBook": "id"} // required for the scope
	seen := 0
	services := v1.File_conductord_v1_service_proto.Services()
	for s := range services.Len() {
		for m := range services.Get(s).Methods().Len() {
			method := services.Get(s).Methods().Get(m)
			name := fmt.Sprintf("%s/%s", services.Get(s).Name(), method.Name())
			request := dynamicpb.NewMessage(method.Input())
			if method.IsStreamingServer() || !namesBoard(request, "mail/"+string(method.Name()), 2) {
				continue
			}
			if field := ids[name]; field != "" {
				request.Set(method.Input().Fields().ByName(protoreflect.Name(field)), protoreflect.ValueOfString(job.ID.String()))
			}
			seen++
			if why := answeredElsewhere[name]; why == "" {
				refused(name, call(name, request))
			} else if answer := call(name, request); strings.Contains(answer, `"wrong_cluster"`) {
				t.Errorf("%s: %s, although %s", name, answer, why)
			}
		}
	}
	if seen < 15 {
		t.Errorf("only %d calls name a board", seen)
	}
	command := &v1.Command{Kind: &v1.Command_Post{Post: &v1.PostCommand{Postings: []*v1.Posting{{Id: jobs.NewJobID().String(), Name: "a", Kind: "k", Board: "mail/executed"}}}}}
	if answer := call("BoardService/Execute", (&v1.ExecuteRequest{Commands: []*v1.Command{command}}).ProtoReflect()); !strings.Contains(answer, `"wrong_cluster"`) {
		t.Errorf("a posting by Execute: %s", answer)
	}
}
