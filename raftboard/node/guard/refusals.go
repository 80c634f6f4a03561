package guard

import (
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/wire"
)

// maxRefusals limits the kinds of refusals that a node stores, because an unknown caller can cause
// any number of kinds.
const maxRefusals = 1_000

// refusals are the calls that a node has refused since its start, with one count for equal calls.
type refusals struct {
	unknown, notAllowed prometheus.Counter

	mu    sync.Mutex
	kinds map[access.Refusal]*access.Refusal // by principal, host and verb; guarded by mu
}

func newRefusals(registry *prometheus.Registry) *refusals {
	counts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "conductord_refused_calls_total", Help: "Refused calls: the caller was unknown, or lacked permission.",
	}, []string{"reason"})
	registry.MustRegister(counts)
	return &refusals{
		unknown: counts.WithLabelValues("unknown"), notAllowed: counts.WithLabelValues("not_allowed"), kinds: make(map[access.Refusal]*access.Refusal),
	}
}

// MetricsPath is the page of metrics.
const MetricsPath = "/metrics"

// otherVerb replaces all paths outside the API.
const otherVerb = "other"

// RefusedVerb returns the text of a path for the record of refusals. A stranger can send any number
// of paths with any bytes, so all paths without a call have the same text.
func RefusedVerb(path string) string {
	if path == MetricsPath {
		return path
	}
	name := strings.Replace(strings.TrimPrefix(path, "/"), "/", ".", 1)
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if _, isCall := found.(protoreflect.MethodDescriptor); err != nil || !isCall || !strings.HasPrefix(path, wire.Prefix) {
		return otherVerb
	}
	return strings.TrimPrefix(path, wire.Prefix)
}

// note records a refusal. At the limit, the least recently seen kind is dropped.
func (r *refusals) note(refusal access.Refusal, now time.Time) {
	if refusal.Principal == "" {
		r.unknown.Inc()
	} else {
		r.notAllowed.Inc()
	}
	kind := refusal
	kind.Error = ""
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.kinds[kind]
	if known == nil {
		if len(r.kinds) >= maxRefusals {
			r.forgetOldestLocked()
		}
		known = &refusal
		r.kinds[kind] = known
	}
	known.Count, known.Last, known.Error = known.Count+1, now, refusal.Error
}

func (r *refusals) forgetOldestLocked() {
	var oldest access.Refusal
	for kind, known := range r.kinds {
		if last := r.kinds[oldest]; last == nil || known.Last.Before(last.Last) {
			oldest = kind
		}
	}
	delete(r.kinds, oldest)
}

// Latest are all kinds, the latest first.
func (r *refusals) Latest() []access.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []access.Refusal
	for _, known := range r.kinds {
		all = append(all, *known)
	}
	slices.SortFunc(all, func(a, b access.Refusal) int { return b.Last.Compare(a.Last) })
	return all
}

// hostOf is the host of an address.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return admission.SocketHost
}
