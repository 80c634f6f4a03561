package daemon

import (
	"runtime/debug"

	"github.com/conductord/conductord/cmd/conductord/cli"
)

// ballastBytes is how much garbage may pile up beyond the heap before the collector
// runs. The daemon keeps little memory and discards much: without ballast the collector
// would run many times a second, which took a twentieth more processor time under a
// load of posts. Of a small limit it takes one part in ballastShare.
const (
	ballastBytes = 64 << 20
	ballastShare = 8
)

// limitMemory gives Go's runtime the limit of the configuration, and allocates ballast:
// memory that nobody touches. The collector counts it, and the system never has to provide
// it. Next to a large heap it hardly matters, where a higher GOGC would. It counts as long
// as it is referred to. When GOGC or GOMEMLIMIT is set, they replace both.
func limitMemory(p *cli.Program, limit int64) (ballast []byte) {
	if p.Value("GOGC") != "" || p.Value("GOMEMLIMIT") != "" {
		return nil
	}
	debug.SetMemoryLimit(limit)
	return make([]byte, min(ballastBytes, limit/ballastShare))
}
