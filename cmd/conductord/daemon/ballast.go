package daemon

import "github.com/conductord/conductord/cmd/conductord/cli"

// ballastBytes is how much garbage may pile up beyond the heap before the collector
// runs. The daemon keeps little memory and discards much: without ballast the collector
// would run many times a second, which took a twentieth more processor time under a
// load of posts.
const ballastBytes = 64 << 20

// ballast allocates memory that nobody touches: the collector counts it, and
// the system never has to provide it. Next to a large heap it hardly matters,
// where a higher GOGC would. When GOGC or GOMEMLIMIT is set there is none. It
// counts as long as it is referred to.
func ballast(p *cli.Program) []byte {
	if p.Value("GOGC") != "" || p.Value("GOMEMLIMIT") != "" {
		return nil
	}
	return make([]byte, ballastBytes)
}
