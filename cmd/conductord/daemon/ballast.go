package daemon

import "github.com/conductord/conductord/cmd/conductord/cli"

// ballastBytes is how much more than its heap a daemon lets garbage pile up
// before it is collected. What a daemon keeps is small and what it throws away
// is much, so without ballast it would collect many times a second: that
// took a twentieth more processor time under a load of posts.
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
