package raftboard

import (
	"context"
	"errors"
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// maxRereads limits how often a flow is read again that changes while it is read in parts.
const maxRereads = 8

// SaveBook implements logbook.Connection.
func (c *Client) SaveBook(ctx context.Context, book logbook.Book) error {
	name := "save book " + book.ID.String()
	message := &v1.Command{Kind: &v1.Command_SaveBook{SaveBook: command.BookToProto(&book)}}
	if err := c.plainLimits().CheckBook(&book); err != nil {
		return fmt.Errorf("cannot %s: %w", name, err)
	}
	c.encrypt(message)
	_, err := execute(ctx, c.others, name, message)
	return err
}

// Book implements logbook.Connection, with as many calls as its flows need. Flows are only appended
// to a book.
func (c *Client) Book(ctx context.Context, id logbook.BookID) (logbook.Book, error) {
	op := operation{name: "read book " + id.String(), reads: true, stale: c.stale}
	var whole logbook.Book
	for {
		request := &v1.GetBookRequest{Id: id.String(), Skip: uint32(len(whole.Flows)), Stale: c.stale}
		answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.GetBookRequest, v1.GetBookResponse] { return p.logbook.GetBook })
		if err != nil {
			return logbook.Book{}, err
		}
		part, err := decoded(op, answer.GetBook(), command.BookFromProto)
		if err != nil {
			return logbook.Book{}, err
		}
		added := len(part.Flows)
		part.Flows = append(whole.Flows, part.Flows...)
		whole = part
		switch {
		case !answer.GetMore():
			return whole, nil
		case added == 0:
			return logbook.Book{}, endless(op)
		}
	}
}

// Books implements logbook.Connection.
func (c *Client) Books(ctx context.Context, after string, limit int) (logbook.Page[logbook.Book], error) {
	op := operation{name: "list books", reads: true, stale: c.stale}
	request := &v1.ListBooksRequest{After: after, Limit: pageLimit(limit), Stale: c.stale}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ListBooksRequest, v1.ListBooksResponse] { return p.logbook.ListBooks })
	return paged(op, answer.GetBooks(), answer.GetNext(), command.BookFromProto, err)
}

// FlowDetail implements logbook.Connection, with as many calls as the flow needs. If the flow
// changes between them, it is read again, because a mixture of two states never existed.
func (c *Client) FlowDetail(ctx context.Context, id logbook.FlowID) (logbook.FlowDetail, error) {
	op := operation{name: "read flow " + id.String(), reads: true, stale: c.stale, over: conductordv1connect.LogbookServiceGetFlowProcedure}
	for range maxRereads {
		flow, err := c.flowOnce(ctx, op, id)
		if !errors.Is(err, errChanged) {
			return flow, err
		}
	}
	return logbook.FlowDetail{}, fmt.Errorf("cannot %s: %w: %w, %d times", op.name, jobs.ErrUnavailable, errChanged, maxRereads)
}

var errChanged = errors.New("the flow changed while it was read in parts")

func (c *Client) flowOnce(ctx context.Context, op operation, id logbook.FlowID) (logbook.FlowDetail, error) {
	var whole logbook.FlowDetail
	for first := true; ; first = false {
		request := &v1.GetFlowRequest{Id: id.String(), Skip: uint32(len(whole.Atoms)), AtomsOnly: !first, Stale: c.stale}
		answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.GetFlowRequest, v1.GetFlowResponse] { return p.logbook.GetFlow })
		if err != nil {
			return logbook.FlowDetail{}, err
		}
		part, err := decoded(op, answer.GetFlow(), command.FlowDetailFromProto)
		if err != nil {
			return logbook.FlowDetail{}, err
		}
		switch {
		case first:
			whole = part
		case part.Fence != whole.Fence || part.Sequence != whole.Sequence:
			return logbook.FlowDetail{}, errChanged
		default:
			whole.Atoms = append(whole.Atoms, part.Atoms...)
		}
		if !answer.GetMore() {
			return whole, nil
		}
		if len(part.Atoms) == 0 || len(whole.Atoms) > logbook.MaxLimits.Steps {
			return logbook.FlowDetail{}, endless(op)
		}
	}
}

// Checkpoints implements logbook.Connection.
func (c *Client) Checkpoints(ctx context.Context, flow logbook.FlowID, step string) (logbook.Values, error) {
	op := operation{name: fmt.Sprintf("read the checkpoints of step %q of flow %s", step, flow), reads: true, stale: c.stale}
	request := &v1.GetCheckpointsRequest{Flow: flow.String(), Step: step, Stale: c.stale}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.GetCheckpointsRequest, v1.GetCheckpointsResponse] {
		return p.logbook.GetCheckpoints
	})
	if err != nil || len(answer.GetCheckpoints()) == 0 {
		return nil, err
	}
	values := make(logbook.Values, len(answer.GetCheckpoints()))
	for _, checkpoint := range answer.GetCheckpoints() {
		values[checkpoint.GetName()] = command.ValueFromProto(checkpoint.GetValue())
	}
	return values, nil
}

// Update implements logbook.Connection. Updates that the client itself refuses get their error
// without a call.
func (c *Client) Update(ctx context.Context, updates ...logbook.Update) ([]error, error) {
	verdicts := make([]error, len(updates))
	var commands []*v1.Command
	var places []int // indexes of the commands in verdicts
	for i := range updates {
		if verdicts[i] = c.plainLimits().CheckUpdate(&updates[i]); verdicts[i] != nil {
			continue
		}
		message := &v1.Command{Kind: &v1.Command_UpdateFlow{UpdateFlow: command.UpdateToProto(&updates[i])}}
		c.encrypt(message)
		if verdicts[i] = checkSize("command", command.Size(message)); verdicts[i] == nil {
			commands, places = append(commands, message), append(places, i)
		}
	}
	op := operation{name: fmt.Sprintf("write %d updates", len(updates))}
	if len(updates) == 1 {
		op.name = "update flow " + updates[0].Flow.String()
	}
	results, err := c.write(ctx, op, commands)
	if err != nil {
		return nil, err
	}
	for k, result := range results {
		verdicts[places[k]] = command.ErrorFromProto(result.GetError())
	}
	return verdicts, nil
}

// DestroyBook implements logbook.Connection.
func (c *Client) DestroyBook(ctx context.Context, id logbook.BookID) error {
	message := &v1.Command{Kind: &v1.Command_DestroyBook{DestroyBook: &v1.DestroyBookCommand{Book: id.String()}}}
	return c.remove(ctx, "destroy book "+id.String(), message, logbook.ErrNotFound)
}
