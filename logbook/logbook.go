// Package logbook defines the record of flows, and Connection, the contract of a store for
// these records.
//
// A Book has FlowDetails. A FlowDetail is the record of one flow, and has one AtomDetail for
// each recorded step or retry. An AtomDetail has the Attempts, each with its result
// or failure. After its start, only Updates change a flow. An Update is atomic and carries the
// Token of its claim. The store refuses it after the claim has ended, so two owners never
// write to one flow.
//
// The package itself does no I/O. FlowDetail.Judge and the Advance methods decide the effect
// of an update, for all stores. Package logbook/memory is a Connection within one process.
// *raftboard.Client is a Connection to a cluster.
package logbook

import "context"

// Connection is a store of books.
//
// These rules apply to all methods:
//
//   - Methods may be called concurrently.
//   - ErrUnavailable means that the call had no effect. ErrUncertain means that it may have
//     had its effect. After either, repeating the call with the same arguments is harmless.
//   - Input over the limits is refused with ErrInvalid or ErrLimit, and changes nothing.
//   - A method returns the context's error when its context ends. The call may have had its
//     effect.
type Connection interface {
	// SaveBook writes a book and its flows, durably on return. An existing book gets the new
	// name and meta, and the flows that it lacks. Flows that are not in the argument stay.
	//
	// An existing flow keeps its state and atoms. Its other fields can change only while the
	// flow is pending and no unfinished job refers to it. Exception: they can also change
	// while the unfinished job is held and not parked, if the flow keeps its factory. Any
	// other difference is an ErrConflict, and nothing is written.
	SaveBook(ctx context.Context, book Book) error

	// Book reads a book with its flows, without their atoms, definitions and
	// interventions. ErrNotFound.
	Book(ctx context.Context, id BookID) (Book, error)

	// Books reads a page of up to limit books without their flows, sorted by id in
	// descending order. With ids from NewBookID, the newest book comes first. after is
	// Page.Next of the previous page; empty: the first page. A limit of 0 or over MaxPage
	// means MaxPage. ErrInvalid if after is not a Page.Next.
	Books(ctx context.Context, after string, limit int) (Page[Book], error)

	// FlowDetail reads a flow with its atoms and their attempts, its definition
	// and its interventions. ErrNotFound.
	FlowDetail(ctx context.Context, id FlowID) (FlowDetail, error)

	// Checkpoints reads the checkpoints of a step, by name: the values that its next attempt gets. nil for a step
	// without checkpoints. ErrNotFound if the flow does not exist.
	Checkpoints(ctx context.Context, flow FlowID, step string) (Values, error)

	// Update applies updates in order, durably on return. The slice has one result for each
	// update: nil if the update was applied, now or before. Otherwise it is:
	//   - ErrNotFound if the flow does not exist.
	//   - ErrFenced if the update's token is not the token of the claim on the flow's job. If
	//     the flow has no unfinished job, only a zero token is accepted, and only while the
	//     flow has never run under a claim.
	//   - ErrConflict if the sequence skips a number, if the flow or an atom cannot change
	//     to the new state, or if a checkpoint is for an attempt that has ended.
	//
	// If the whole call fails, Update returns an error and no slice.
	Update(ctx context.Context, updates ...Update) ([]error, error)

	// DestroyBook removes a book, its flows and their atoms, durably on return. ErrNotFound;
	// ErrConflict while an unfinished job refers to the book.
	DestroyBook(ctx context.Context, id BookID) error
}
