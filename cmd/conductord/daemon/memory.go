package daemon

import (
	"runtime/debug"

	"github.com/conductord/conductord/cmd/conductord/cli"
)

// ballastBytes is the additional garbage that can accumulate before the collector runs. The daemon
// keeps little memory and discards much. Without ballast the collector would run many times a
// second, which costs 5 % more processor time under a load of posts. With a small memory limit, the
// ballast is one part in ballastShare of the limit.
const (
	ballastBytes = 64 << 20
	ballastShare = 8
)

// limitMemory gives Go's runtime the limit of the configuration, and allocates ballast: memory that
// is never touched. The collector counts the ballast, but the system never has to provide it. Next
// to a large heap, the ballast hardly matters, unlike a higher GOGC. It has an effect only while it
// is referenced. GOGC or GOMEMLIMIT, if set, replace limit and ballast.
func limitMemory(p *cli.Program, limit int64) (ballast []byte) {
	if p.Value("GOGC") != "" || p.Value("GOMEMLIMIT") != "" {
		return nil
	}
	debug.SetMemoryLimit(limit)
	return make([]byte, min(ballastBytes, limit/ballastShare))
}
