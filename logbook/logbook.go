// Package logbook is the record of flows: books of flows, the state of every
// step, every attempt at it with its result or failure, and the contract of the
// store that keeps them.
//
// A Book holds FlowDetails; a FlowDetail holds AtomDetails, one for each step
// of the flow; an AtomDetail holds the Attempts at the step. Only Updates
// change a flow that has begun. An Update is indivisible, carries the Token of
// its claim, and is refused when that claim is over: so two engines can never
// both write to one flow.
//
// The package decides what an update does (FlowDetail.Judge, Advance), and
// stores share that decision; it does no I/O of its own. Package memory is a
// Connection within one process, package raftboard one to a cluster.
package logbook

import "context"

// Connection is a store of books. Every method may be called concurrently.
//
// An error that wraps ErrUnavailable says that nothing happened, one that
// wraps ErrUncertain that it may have; every method can be repeated after
// either, with the same arguments, without harm. Input over the limits is
// refused with ErrInvalid or ErrLimit and changes nothing. A method returns
// early with the context's error; then too it may or may not have happened.
type Connection interface {
	// SaveBook writes a book and its flows, durably on return. A book that
	// exists takes the new name and meta and the flows that it does not have;
	// flows that are absent from the argument stay. A flow that it has keeps
	// its state and atoms, and takes the rest only while it is pending and no
	// unfinished job refers to it, or a held one that is not parked, whose
	// flow keeps its factory: otherwise a difference is ErrConflict and
	// nothing is written.
	SaveBook(ctx context.Context, book Book) error

	// Book reads a book with its flows, without their atoms, definitions and
	// interventions. ErrNotFound.
	Book(ctx context.Context, id BookID) (Book, error)

	// Books reads up to limit books without their flows, the one with the highest id first:
	// the newest, with ids of NewBookID. After is the Next of the page before; empty means the first page. A
	// limit of 0 or over MaxPage means MaxPage. ErrInvalid for an unknown After.
	Books(ctx context.Context, after string, limit int) (Page[Book], error)

	// FlowDetail reads a flow with its atoms and their attempts, its definition
	// and its interventions. ErrNotFound.
	FlowDetail(ctx context.Context, id FlowID) (FlowDetail, error)

	// Update applies updates in order, durably on return. The slice holds one
	// result for each, nil for applied or repeated:
	//   - ErrNotFound;
	//   - ErrFenced if the token is not that of the claim on the flow's job; or, if
	//     the flow has no unfinished job, if the token is not zero or the flow has
	//     run under a claim before;
	//   - ErrConflict for a number out of order or a state that the flow cannot take.
	//
	// The second error is that of the call as a whole; then the slice is nil.
	Update(ctx context.Context, updates ...Update) ([]error, error)

	// DestroyBook removes a book, its flows and their atoms. ErrNotFound;
	// ErrConflict while an unfinished job refers to it.
	DestroyBook(ctx context.Context, id BookID) error
}
