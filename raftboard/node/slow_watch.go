package node

import (
	"net/http"
	"time"

	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/raftboard/wire"
)

// watchPatience is how long the reader of a watch may take nothing. What is on
// the way to it is bounded by the windows of its connection; a reader that has
// stopped for good must not hold these, and a call, for ever.
const watchPatience = 30 * time.Second

// A watch sends signs of life, and each gives it its time anew.
const _ = uint64(watchPatience - 2*wire.WatchSign)

// dropSlowWatches ends watches whose readers take nothing. Whoever is dropped
// goes on behind the last position that it has seen.
func (n *Node) dropSlowWatches(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != conductordv1connect.BoardServiceWatchProcedure {
			next.ServeHTTP(w, r)
			return
		}
		timed := &timedWriter{ResponseWriter: w, controller: http.NewResponseController(w), patience: n.watchPatience}
		next.ServeHTTP(timed, r)
		if timed.failed {
			n.logger.Info("a watch has ended: its reader took nothing, or is gone", "reader", r.RemoteAddr)
		}
		_ = timed.controller.SetWriteDeadline(time.Time{}) // the connection may serve other calls
	})
}

// timedWriter gives every write its time.
type timedWriter struct {
	http.ResponseWriter
	controller *http.ResponseController
	patience   time.Duration
	failed     bool
}

// Write implements http.ResponseWriter.
func (t *timedWriter) Write(data []byte) (int, error) {
	_ = t.controller.SetWriteDeadline(time.Now().Add(t.patience)) // without it the watch is only not timed
	n, err := t.ResponseWriter.Write(data)
	t.failed = t.failed || err != nil
	return n, err
}

// FlushError implements what http.ResponseController asks for.
func (t *timedWriter) FlushError() error {
	_ = t.controller.SetWriteDeadline(time.Now().Add(t.patience))
	err := t.controller.Flush()
	t.failed = t.failed || err != nil
	return err
}

// Flush implements http.Flusher.
func (t *timedWriter) Flush() { _ = t.FlushError() } // the next write tells

// Unwrap implements what http.ResponseController asks for.
func (t *timedWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }
