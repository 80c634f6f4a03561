package raftboard

import (
	"context"
	"fmt"
	"io"

	"connectrpc.com/connect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
)

// Backup reads a backup of the cluster from a node: a file in the format of package
// raftboard/node/backup. It contains at least everything that was acknowledged before the call;
// on a Stale client, everything that the answering node knows. The context limits the whole
// read. After a failed Read, make the backup again; nothing was lost. The caller closes the
// reader.
func (c *Client) Backup(ctx context.Context) (io.ReadCloser, error) {
	op := operation{name: "make a backup", reads: true, stale: c.stale}
	if !c.stale {
		// Afterwards, the client requires every node to have applied the index of this answer.
		if _, err := c.BoardList(ctx, "", 1); err != nil {
			return nil, cannot(op.name, err)
		}
	}
	bounded, cancel := c.bounded(ctx, c.options.Patience)
	defer cancel(nil)
	tries := c.newRetry(true)
	for {
		p, err := tries.next(bounded)
		if err != nil {
			return nil, tries.giveUp(op, ctx, bounded)
		}
		reader, failed := c.backupAt(ctx, p)
		switch {
		case failed == nil:
			return reader, nil
		case failed.final:
			return nil, cannot(op.name, failed.err)
		}
		tries.failed(bounded, p, failed)
	}
}

// backupAt starts a backup at a node, and returns when the first part has arrived.
func (c *Client) backupAt(ctx context.Context, p *peer) (*backupReader, *tryError) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.life, cancel)
	request := connect.NewRequest(&v1.BackupRequest{})
	c.setMinIndex(request.Header())
	var reach reach
	r := &backupReader{peer: p, end: func() { stop(); cancel() }}
	var err error
	if r.stream, err = p.cluster.Backup(reach.trace(ctx), request); err == nil {
		if r.stream.Receive() {
			r.part = r.stream.Msg().GetPart()
			return r, nil
		}
		if err = r.stream.Err(); err == nil {
			err = io.ErrUnexpectedEOF
		}
	}
	failed := c.classify(p, &reach, err)
	_ = r.Close()
	return nil, failed
}

// backupReader reads the parts of a backup. It implements io.ReadCloser.
type backupReader struct {
	peer   *peer
	stream *connect.ServerStreamForClient[v1.BackupResponse]
	part   []byte // not read yet
	end    func()
}

// Read reads the next bytes of the backup.
func (r *backupReader) Read(into []byte) (int, error) {
	for len(r.part) == 0 {
		if !r.stream.Receive() {
			if err := r.stream.Err(); err != nil {
				return 0, fmt.Errorf("the backup from %s was interrupted; create it again: %w", r.peer, err)
			}
			return 0, io.EOF
		}
		r.part = r.stream.Msg().GetPart()
	}
	n := copy(into, r.part)
	r.part = r.part[n:]
	return n, nil
}

// Close ends the read. Closing twice is harmless.
func (r *backupReader) Close() error {
	r.end() // so that closing does not wait for the rest
	if r.stream != nil {
		_ = r.stream.Close()
	}
	return nil
}
