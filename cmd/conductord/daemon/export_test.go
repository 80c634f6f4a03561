package daemon

import "github.com/conductord/conductord/cmd/conductord/cli"

// BallastBytes is what a daemon takes beyond its heap.
const BallastBytes = ballastBytes

// Ballast is how much of that a program takes in its environment.
func Ballast(p *cli.Program, limit int64) int { return len(limitMemory(p, limit)) }
