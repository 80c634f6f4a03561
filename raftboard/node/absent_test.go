package node_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/wire"
)

// foreignTimes makes TestForeignIsAsAbsent also measure the times of the answers. The machine must
// be idle.
var foreignTimes = flag.Int("foreign-times", 0, "how often TestForeignIsAsAbsent makes each pair of calls to time them; 0: it times none")

// encodings are the encodings of a call, by content type.
var encodings = []string{"application/json", "application/proto", "application/grpc+proto", "application/grpc-web+proto"}

// encoded converts a request from JSON to an encoding.
func encoded(t *testing.T, name, request, encoding string) []byte {
	t.Helper()
	if encoding == "application/json" {
		return []byte(request)
	}
	body, err := proto.Marshal(requestOf(t, name, request))
	if err != nil {
		t.Fatal(err)
	}
	if encoding == "application/proto" {
		return body
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
}

// requestOf returns the message of a request in JSON.
func requestOf(t *testing.T, name, request string) proto.Message {
	t.Helper()
	method, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("conductord.v1." + strings.Replace(name, "/", ".", 1)))
	if err != nil {
		t.Fatal(err)
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(method.(protoreflect.MethodDescriptor).Input().FullName())
	if err != nil {
		t.Fatal(err)
	}
	message := kind.New().Interface()
	if err := (wire.JSONCodec{}).Unmarshal([]byte(request), message); err != nil {
		t.Fatalf("%s %s: %v", name, request, err)
	}
	return message
}

// exchange makes a call, and returns the complete answer: status, headers, body and trailers.
func (c *tenants) exchange(client *http.Client, token, name, request, encoding string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	body := bytes.NewReader(encoded(c.t, name, request, encoding))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+c.options[0].Members[0].API+wire.Prefix+name, body)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", encoding)
	r.Header.Set("Te", "trailers")
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := client.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	told := fmt.Sprintln(answer.StatusCode)
	if name == "BoardService/Watch" && answer.StatusCode == http.StatusOK { // this call does not end
		return told
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	answer.Header.Del("Date")
	if answer.Header.Get(wire.HeaderIndex) != "" {
		answer.Header.Set(wire.HeaderIndex, "of the log")
	}
	for _, header := range []http.Header{answer.Header, answer.Trailer} {
		for _, key := range slices.Sorted(maps.Keys(header)) {
			told += fmt.Sprintln(key, header[key])
		}
	}
	return told + string(text)
}

var (
	inBase64 = regexp.MustCompile(`[A-Za-z0-9+/_-]{24,}`)
	ofLength = regexp.MustCompile(`(?i)(content-length \[|length: )\d+`)
)

// withoutIDs removes the ids of a request from an answer, including its details. Other UUIDs stay,
// because a token such as 1-90 can be a part of one.
func withoutIDs(answer string, ids ...string) string {
	pattern := `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`
	for _, id := range ids {
		pattern += "|" + regexp.QuoteMeta(id)
	}
	anyID := regexp.MustCompile(pattern)
	numbered := func(found []byte) []byte {
		if i := slices.Index(ids, string(found)); i >= 0 {
			return fmt.Append(nil, "ID", i)
		}
		return found
	}
	answer = string(anyID.ReplaceAllFunc([]byte(answer), numbered))
	answer = ofLength.ReplaceAllString(answer, "$1")
	return inBase64.ReplaceAllStringFunc(answer, func(text string) string {
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			decoded, err := encoding.DecodeString(text)
			decoded = anyID.ReplaceAllFunc(decoded, numbered)
			if err == nil && bytes.Contains(decoded, []byte("ID")) {
				return fmt.Sprintf("%q", decoded)
			}
		}
		return text
	})
}

// ids are the ids of a tenant's objects.
func (o *tenant) ids() map[string]string {
	return map[string]string{"job": o.job.String(), "claimed job": o.claimed.String(), "book": o.book.String(), "flow": o.flow.String(), "session": o.session.String(), "name": o.mark, "token": o.token.String()}
}

// moreRequests are requests of calls that take ids in several ways. A request that creates an
// object is refused if its id is taken. Its answer is compared with the answer for another taken
// id.
func (o *tenant) moreRequests() (others, taking map[string][]string) {
	token := fmt.Sprintf(`"job": %q, "token": %q`, o.claimed, o.token)
	nonce := jobs.NewNonce()
	attempt := fmt.Sprintf(`{"flow": %q, "step": "s", "action": "execute", "attempt": 1}`, o.flow)
	var executed []string
	for _, command := range []string{
		`"consume": {%[1]s, "outcome": "success"}`, `"consume": {%[1]s, "outcome": "failed"}`, `"abandon": {%[1]s}`, `"trash": {%[1]s}`, `"extend_claim": {%[1]s, "expiry": "60s"}`,
		`"consume": {%[1]s, "outcome": "success", "update": {"flow": %[3]q, "sequence": "1", "state": "success"}}`,
		`"claim": {"session": %[2]q, "job": %[4]q, "nonce": %[5]q}`, `"suspend": {"job": %[4]q}`, `"resume": {"job": %[4]q}`, `"cancel": {"job": %[4]q}`, `"retry": {"job": %[4]q}`, `"purge": {"job": %[4]q}`,
		`"transfer": {"job": %[4]q, "to": %[8]q}`, `"change": {"job": %[4]q, "priority": 3}`, `"change": {"job": %[4]q, "board": %[7]q}`,
		`"intervene": {"id": %[5]q, "flow": %[3]q, "kind": "rerun", "step": "s"}`, `"update_flow": {"flow": %[3]q, "sequence": "1", "state": "running"}`,
		`"update_flow": {"flow": %[3]q, "token": %[9]q, "sequence": "1", "state": "running"}`, `"destroy_book": {"book": %[6]q}`,
		`"close_session": {"session": %[2]q}`, `"register": {"session": %[2]q, "entity": {"kind": "conductor", "name": "c", "boards": [%[7]q]}}`,
		`"post": {"postings": [{"id": %[5]q, "board": %[7]q, "name": "n", "book_id": %[6]q, "flow": %[3]q}]}`,
	} {
		command = strings.NewReplacer("%[1]s", token, "%[2]q", fmt.Sprintf("%q", o.session), "%[3]q", fmt.Sprintf("%q", o.flow), "%[4]q", fmt.Sprintf("%q", o.job), "%[5]q", fmt.Sprintf("%q", nonce),
			"%[6]q", fmt.Sprintf("%q", o.book), "%[7]q", fmt.Sprintf("%q", o.board), "%[8]q", fmt.Sprintf("%q", o.mark), "%[9]q", fmt.Sprintf("%q", o.token)).Replace(command)
		executed = append(executed, `{"commands": [{`+command+`}]}`)
	}
	flow := fmt.Sprintf(`{"id": %q, "name": "f", "factory": {"name": "f"}}`, o.flow)
	found := make([]string, 0, len(jobs.IDNouns))
	for noun, id := range map[jobs.IDNoun]string{jobs.IDOfJob: o.job.String(), jobs.IDOfBook: o.book.String(), jobs.IDOfFlow: o.flow.String(), jobs.IDOfSession: o.session.String()} {
		found = append(found, fmt.Sprintf(`{"noun": %q, "prefix": %q}`, noun, id))
	}
	others = map[string][]string{
		"BoardService/Execute": executed, "BoardService/FindIDs": found,
		"BoardService/Post":           {fmt.Sprintf(`{"postings": [{"id": %q, "board": %q, "name": "n", "book_id": %q, "flow": %q}]}`, nonce, o.board, o.book, o.flow)},
		"BoardService/Consume":        {`{` + token + `, "outcome": "failed"}`},
		"BoardService/ListClaims":     {fmt.Sprintf(`{"job": %q}`, o.claimed), fmt.Sprintf(`{"session": %q}`, o.session)},
		"BoardService/ListErrors":     {fmt.Sprintf(`{"job": %q}`, o.job)},
		"BoardService/Watch":          {fmt.Sprintf(`{"job": %q}`, o.job)},
		"BoardService/ClaimNext":      {fmt.Sprintf(`{"claim": {"session": %q, "boards": [%q], "kinds": ["none"], "nonce": %q}}`, o.session, o.board, nonce)},
		"BoardService/Change":         {fmt.Sprintf(`{"job": %q, "board": %q}`, o.job, o.board)},
		"BoardService/Transfer":       {fmt.Sprintf(`{"job": %q, "to": %q}`, o.job, o.mark)},
		"SessionService/Register":     {fmt.Sprintf(`{"session": %q, "entity": {"kind": "conductor", "name": "c", "boards": [%q]}}`, o.session, o.board)},
		"LogbookService/UpdateFlows":  {fmt.Sprintf(`{"updates": [{"flow": %q, "token": %q, "sequence": "1", "state": "running"}]}`, o.flow, o.token)},
		"LogbookService/SaveBook":     {fmt.Sprintf(`{"id": %q, "name": "n"}`, o.book)},
		"WorkerService/Pull":          {fmt.Sprintf(`{"session": %q, "slots": 1, "holds": [{"id": %s}]}`, o.session, attempt)},
		"WorkerService/Report":        {fmt.Sprintf(`{"session": %q, "outcome": {"id": %s, "output": "cA=="}}`, o.session, attempt)},
		"WorkerService/Offer":         {fmt.Sprintf(`{"session": %q, "only_session": %q, "work": {"type": "s", %s, "id": %s}}`, o.session, o.session, token, attempt)},
		"SessionService/ListEntities": {fmt.Sprintf(`{"kind": "conductor", "name": %q}`, o.mark)},
	}
	taking = map[string][]string{
		"BoardService/Post": {fmt.Sprintf(`{"postings": [{"id": %q, "board": "mine/a", "name": "n", "kind": "k"}]}`, o.job),
			fmt.Sprintf(`{"postings": [{"id": %q, "board": "mine/a", "name": "n", "book": {"id": %q, "name": "n", "flows": [{"id": %q, "name": "f", "factory": {"name": "f"}}]}}]}`, nonce, o.book, nonce),
			fmt.Sprintf(`{"postings": [{"id": %q, "board": "mine/a", "name": "n", "book": {"id": %q, "name": "n", "flows": [%s]}}]}`, nonce, nonce, flow)},
		"LogbookService/SaveBook": {fmt.Sprintf(`{"id": %q, "name": "n", "board": "mine/a"}`, o.book), fmt.Sprintf(`{"id": %q, "name": "n", "board": "mine/a", "flows": [%s]}`, nonce, flow)},
		"SessionService/Open":     {fmt.Sprintf(`{"opening": {"id": %q, "name": "s"}}`, o.session)},
	}
	return others, taking
}

// TestForeignIsAsAbsent makes every call, in each encoding, about objects of another tenant and about missing
// objects, with one id or all ids of a valid request replaced. Except for the ids, the answers are equal:
// status, code, text, fields, headers. Promise: objects that a caller may not know look like missing objects.
func TestForeignIsAsAbsent(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	own, foreign, second := c.newTenant("mine/a", "own-mark"), c.newTenant("other/b", "foreign-mark"), c.newTenant("third/c", "second-mark")
	if err := second.trash(c); err != nil {
		t.Fatal(err)
	}
	if err := c.operator.Suspend(t.Context(), jobs.JobCommand{Job: second.job}); err != nil {
		t.Fatal(err)
	}
	foreign.begin(c)
	mine := "mine/*"
	token, _ := c.token(own.worker, time.Time{}, access.Grant{Role: access.Administrator, Boards: mine}, access.Grant{Role: access.Worker, Boards: mine}, access.Grant{Role: access.Operator, Boards: mine})
	if err := c.as(token).Register(t.Context(), own.session, jobs.Entity{Kind: jobs.EntityWorker, Name: own.mark, Boards: []string{own.board}, JobKinds: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: opening(t, c.anybody()).Client(), ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}

	others, taking := own.moreRequests()
	requests := own.requests()
	delete(requests, "LogbookService/SaveBook") // contains the name of the tenant
	for name := range node.Calls() {
		if request, found := requests[name]; found {
			others[name] = append(others[name], request)
		}
	}
	compare := func(name, request string, there, absent map[string]string, kinds ...string) {
		var of, with [2]string
		ids := [2][]string{}
		for _, encoding := range encodings {
			if name == "BoardService/Watch" && encoding != "application/json" {
				continue // other streams do not end
			}
			for i, known := range []map[string]string{there, absent} {
				replaced := request
				for _, kind := range kinds {
					replaced = strings.ReplaceAll(replaced, own.ids()[kind], known[kind])
				}
				of[i], with[i] = c.exchange(client, token, name, replaced, encoding), replaced
				ids[i] = nil
				for _, kind := range kinds {
					ids[i] = append(ids[i], known[kind])
				}
			}
			if a, b := withoutIDs(of[0], ids[0]...), withoutIDs(of[1], ids[1]...); a != b {
				t.Errorf("%s %s in %s is answered\n%s\nand %s\n%s", name, with[0], encoding, a, with[1], b)
			}
			if *foreignTimes > 0 && encoding == encodings[0] {
				c.sameTime(name, with, func(request string) { c.exchange(client, token, name, request, encoding) })
			}
		}
	}
	for name, all := range others {
		for _, request := range all {
			var kinds []string
			for kind, id := range own.ids() {
				if strings.Contains(request, id) {
					kinds = append(kinds, kind)
				}
			}
			slices.Sort(kinds)
			for _, kind := range kinds {
				compare(name, request, foreign.ids(), absentIDs(), kind)
			}
			if len(kinds) > 1 {
				compare(name, request, foreign.ids(), absentIDs(), kinds...)
			}
		}
	}
	for name, all := range taking {
		for _, request := range all {
			for kind, id := range own.ids() {
				if strings.Contains(request, id) {
					compare(name, request, foreign.ids(), second.ids(), kind)
				}
			}
		}
	}
	if job, err := c.operator.Job(t.Context(), foreign.claimed); err != nil || job.State != jobs.StateClaimed || job.Token != foreign.token {
		t.Errorf("it has changed: %+v, %v", job, err)
	}
	allIDsAreGiven(t, others, taking)
}

// allIDsAreGiven checks that the requests have an id in each id field.
func allIDsAreGiven(t *testing.T, requests ...map[string][]string) {
	t.Helper()
	given, all := idFields(t, requests...)
	for field := range all {
		if !given[field] && !slices.Contains(otherIDs, field) {
			t.Errorf("no request above has an id in %s", field)
		}
	}
}

// sameTime measures two requests in pairs, in changing order. The first is slower in about half of
// the pairs, unless the time reveals whether the object exists. Five standard deviations are
// allowed.
func (c *tenants) sameTime(name string, requests [2]string, exchange func(request string)) {
	c.t.Helper()
	slower, n := 0, *foreignTimes
	var took [2][]time.Duration
	for pair := range n {
		for i := range 2 {
			which := (i + pair) % 2
			began := time.Now()
			exchange(requests[which])
			took[which] = append(took[which], time.Since(began))
		}
		if took[0][pair] > took[1][pair] {
			slower++
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	told := fmt.Sprintf("%s %.60s: %v, absent %v, slower in %d of %d pairs", name, requests[0], took[0][n/2], took[1][n/2], slower, n)
	if off := math.Abs(float64(slower) - float64(n)/2); off > 5*math.Sqrt(float64(n))/2 {
		c.t.Error("the time of the answer reveals existing objects:", told)
	} else {
		c.t.Log(told)
	}
}

// otherIDs are fields with names like ids that name no object of a tenant.
var otherIDs = []string{
	"Change.id", "Intervention.id", "Signal.id", "Decision.id", // of the requested objects
	"Sending.job",                                      // the answer is not_found in both cases: see TestStepsSignal
	"FlowDetail.book", "Schedule.id", "Entity.session", // nodes set them
	"Attempt.worker", "OfferStepRequest.worker", // recorded by the conductor; the offer must have the same worker
	"TokenUse.id", "AddAccessTokenCommand.id", "RevokeAccessTokenCommand.id", // of administrators of all boards
	"ExpireClaimCommand.job", "ExpireSessionCommand.session", // internal to the leader
}

// idFields are the fields of requests in which ids are given, and all fields with names of ids.
func idFields(t *testing.T, requests ...map[string][]string) (given, all map[string]bool) {
	t.Helper()
	given, all = map[string]bool{}, map[string]bool{}
	isID := func(field protoreflect.FieldDescriptor) bool {
		return field.Kind() == protoreflect.StringKind && slices.Contains([]string{"id", "job", "flow", "book", "book_id", "session", "only_session", "worker"}, string(field.Name()))
	}
	name := func(field protoreflect.FieldDescriptor) string {
		return string(field.Parent().Name() + "." + field.Name())
	}
	seen := map[protoreflect.FullName]bool{}
	var walk func(message protoreflect.MessageDescriptor)
	walk = func(message protoreflect.MessageDescriptor) {
		for i := range message.Fields().Len() {
			field := message.Fields().Get(i)
			if isID(field) {
				all[name(field)] = true
			}
			if of := field.Message(); of != nil && !seen[of.FullName()] {
				seen[of.FullName()] = true
				walk(of)
			}
		}
	}
	var note func(message protoreflect.Message)
	note = func(message protoreflect.Message) {
		message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
			switch {
			case isID(field):
				given[name(field)] = true
			case field.Message() != nil && field.IsList():
				for i := range value.List().Len() {
					note(value.List().Get(i).Message())
				}
			case field.Message() != nil && !field.IsMap():
				note(value.Message())
			}
			return true
		})
	}
	for _, table := range requests {
		for call, texts := range table {
			for _, text := range texts {
				message := requestOf(t, call, text)
				walk(message.ProtoReflect().Descriptor())
				note(message.ProtoReflect())
			}
		}
	}
	return given, all
}

// begin lets the worker of a tenant start its flow and take the step itself.
func (o *tenant) begin(c *tenants) jobs.Token {
	c.t.Helper()
	ctx, worker := c.t.Context(), c.as(o.workerToken)
	if err := c.operator.Change(ctx, jobs.Change{Job: o.job, Release: true}); err != nil {
		c.t.Fatal(err)
	}
	granted, err := worker.Claim(ctx, o.session, o.job, jobs.NewNonce())
	if err != nil {
		c.t.Fatal(err)
	}
	token := granted.Job.Token
	attempt := logbook.Attempt{Action: logbook.ActionExecute, Number: 1, Token: token, StartedAt: time.Now(), Offered: true, Worker: o.session.String()}
	update := logbook.Update{Flow: o.flow, Token: token, Sequence: 1, State: logbook.FlowRunning,
		Atoms: []logbook.AtomChange{{Name: "s", Kind: logbook.KindTask, State: logbook.AtomRunning, Attempts: []logbook.Attempt{attempt}}}}
	verdicts, err := worker.Update(ctx, update)
	if err := errors.Join(append(verdicts, err)...); err != nil {
		c.t.Fatal(err)
	}
	return token
}

// absentIDs are ids that no object has.
func absentIDs() map[string]string {
	return map[string]string{"job": jobs.NewJobID().String(), "claimed job": jobs.NewJobID().String(), "book": logbook.NewBookID().String(), "flow": logbook.NewFlowID().String(), "session": jobs.NewSessionID().String(), "name": "absent-mark!", "token": "9-99"}
}
