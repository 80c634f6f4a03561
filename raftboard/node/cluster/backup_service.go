package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/api"
	"github.com/conductord/conductord/raftboard/node/backup"
	"github.com/conductord/conductord/raftboard/node/lead"
	"github.com/conductord/conductord/raftboard/wire"
)

const (
	backupCall = "ClusterService/Backup"
	backupPart = 256 << 10 // bytes of one message
)

// backupService answers Backup.
type backupService struct {
	cluster, node, version string
	machine                *fsm.Machine
	ready                  *lead.Readiness
	router                 *api.Router
	running                chan struct{} // holds one element while a backup is made
}

// Backup streams a backup of this node's state, in messages.
func (s *backupService) Backup(ctx context.Context, request *connect.Request[conductordv1.BackupRequest], stream *connect.ServerStream[conductordv1.BackupResponse]) error {
	err := s.write(ctx, request.Header(), partWriter(func(part []byte) error {
		return stream.Send(&conductordv1.BackupResponse{Part: part})
	}))
	if err != nil {
		return wire.ErrorToConnect(err)
	}
	return nil
}

// file serves backups to clients without connect's protocol: it answers a request of the content
// type application/json with the file itself. Other requests go to next.
func (s *backupService) file(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !api.IsPlain(r) {
			next.ServeHTTP(w, r)
			return
		}
		begun := false
		err := s.write(r.Context(), r.Header, partWriter(func(part []byte) error {
			begun = true
			w.Header().Set("Content-Type", "application/x-tar")
			_, err := w.Write(part)
			return err
		}))
		switch {
		case err == nil:
		case begun:
			panic(http.ErrAbortHandler) // so that the client does not take it for the end
		default:
			s.router.Guard.WriteRefusal(w, r, wire.ErrorToConnect(err))
		}
	})
}

// write writes a backup. Only one backup runs at a time: while the state is read, the database
// cannot free deleted rows.
func (s *backupService) write(ctx context.Context, header http.Header, to io.Writer) error {
	still := func() error { return s.router.Guard.Allow(ctx, backupCall, command.Administer, nil) }
	if err := still(); err != nil {
		return err
	}
	if p := s.router.Guard.HidesValuesFrom(ctx); p != "" {
		return fmt.Errorf("%w: principal %q has no permission to read values, and a backup contains all values", jobs.ErrNotAllowed, p)
	}
	if err := s.router.RecordSoon(ctx, backupCall, "node="+s.node); err != nil && !errors.Is(err, jobs.ErrUnavailable) {
		return err // a cluster without a leader especially needs a backup
	}
	select {
	case s.running <- struct{}{}:
		defer func() { <-s.running }()
	default:
		return fmt.Errorf("%w: node %q is creating another backup: wait, or use another node", jobs.ErrUnavailable, s.node)
	}
	if err := s.ready.AwaitMinIndex(ctx, header); err != nil {
		return err
	}
	snapshot, err := s.machine.Snapshot()
	if err != nil {
		return fmt.Errorf("cannot begin a backup: %w", err)
	}
	defer snapshot.Close() //nolint:errcheck // it was only read
	ctx, end := s.router.Guard.While(ctx, still)
	defer end()
	var pacer pacer
	out := bufio.NewWriterSize(&pacedWriter{ctx: ctx, to: to}, backupPart)
	of := backup.Manifest{Cluster: s.cluster, Node: s.node, Version: s.version}
	err = backup.Make(out, of, snapshot, func() error {
		pacer.rest()
		return context.Cause(ctx)
	})
	if err != nil {
		return err
	}
	return out.Flush()
}

// partWriter is an io.Writer that sends each part to the client.
type partWriter func(part []byte) error

func (send partWriter) Write(part []byte) (int, error) {
	if err := send(part); err != nil {
		return 0, err
	}
	return len(part), nil
}

// pacedWriter writes in parts, with a pause after each.
type pacedWriter struct {
	ctx   context.Context
	to    io.Writer
	pacer pacer
}

func (w *pacedWriter) Write(all []byte) (int, error) {
	for rest := all; len(rest) > 0; {
		part := rest[:min(len(rest), backupPart)]
		rest = rest[len(part):]
		if err := context.Cause(w.ctx); err != nil {
			return 0, err
		}
		if _, err := w.to.Write(part); err != nil {
			return 0, err
		}
		w.pacer.rest()
	}
	return len(all), nil
}

// pacer pauses long work, so that the work takes a quarter of a processor. Calls keep most of their
// speed meanwhile.
type pacer struct{ began time.Time }

// maxRest limits a pause, because slow work may have waited for a slow client.
const maxRest = 10 * time.Millisecond

// rest is called after each small piece.
func (p *pacer) rest() {
	if !p.began.IsZero() {
		time.Sleep(min(3*time.Since(p.began), maxRest))
	}
	p.began = time.Now()
}
