//go:build linux

package processes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// damage is one wrong bit in a file of a node.
type damage struct {
	path string
	at   int64  // of the page in the file
	page []byte // as it is with the wrong bit
	byte int    // in the page
	bit  byte
}

const pageBytes = 4 << 10

// crashed matches the log of a process that did not end on purpose.
var crashed = regexp.MustCompile(`(?m)^(panic:|fatal error:|unexpected fault address|goroutine \d+ \[)`)

// Damage kills a node, flips one bit of one of its files, and starts it again. It returns an
// error unless the node starts, or refuses with a message. While another node is damaged,
// Damage does nothing.
func (p *Processes) Damage(i int, seed uint64) error {
	if slices.ContainsFunc(p.damages, func(d *damage) bool { return d != nil }) {
		return nil // the guarantees require a majority of intact disks
	}
	p.Kill(i)
	node, draw := p.nodes.Nodes[i], rand.New(rand.NewPCG(seed, 0))
	made, err := damageOne(node.DataDir, draw)
	if err != nil || made == nil {
		return err
	}
	p.damages[i] = made
	before, err := os.ReadFile(node.Log)
	if err != nil {
		return err
	}
	if err := p.Start(i); err != nil {
		return err
	}
	const patience = 15 * time.Second // it may also have to wait for others
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ready := node.WaitReady(ctx)
	after, err := os.ReadFile(node.Log)
	if err != nil {
		return err
	}
	said := string(after[len(before):])
	what := fmt.Sprintf("bit %d of byte %d of %s of %s", made.bit, made.at+int64(made.byte), filepath.Base(made.path), node.Name)
	switch {
	case crashed.MatchString(said):
		return fmt.Errorf("with %s wrong, the node crashed:\n%s", what, said)
	case ready == nil:
		p.told = append(p.told, what+": the node started")
	case p.Running(i):
		p.told = append(p.told, what+": the node waits")
	default:
		p.told = append(p.told, what+": the node refused: "+said[strings.LastIndexByte(strings.TrimSpace(said), '\n')+1:])
	}
	return nil
}

// Repair starts the node after it has restored the flipped bit, unless that bit was
// overwritten since.
func (p *Processes) Repair(i int) error {
	made := p.damages[i]
	if made == nil {
		return nil
	}
	p.damages[i] = nil
	p.Kill(i)
	file, err := os.OpenFile(made.path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return p.Start(i) // the node has removed it
	}
	if err != nil {
		return err
	}
	now := make([]byte, len(made.page))
	if _, err := file.ReadAt(now, made.at); err == nil && bytes.Equal(now, made.page) {
		_, err = file.WriteAt([]byte{now[made.byte] ^ 1<<made.bit}, made.at+int64(made.byte))
		must(err)
	}
	return errors.Join(file.Sync(), file.Close(), p.Start(i))
}

// Damaged returns the results of damaged nodes, in order.
func (p *Processes) Damaged() []string { return p.told }

// damageOne flips a bit of a file; nil: no file to damage.
func damageOne(dir string, draw *rand.Rand) (*damage, error) {
	var paths []string
	for _, path := range filesBelow(dir) {
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && info.Size() > 0 && filepath.Base(path) != "filler" {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return nil, nil
	}
	slices.Sort(paths)
	made := &damage{path: paths[draw.IntN(len(paths))], bit: byte(draw.IntN(8))}
	file, err := os.OpenFile(made.path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	// The start of a file is needed to read the rest, and the rest is largely empty. Half of
	// the damage is therefore at the start.
	reach := info.Size()
	if draw.IntN(2) == 0 {
		reach = min(reach, 4*pageBytes)
	}
	at := draw.Int64N(reach)
	made.at, made.byte = at/pageBytes*pageBytes, int(at%pageBytes)
	made.page = make([]byte, min(pageBytes, info.Size()-made.at))
	if _, err := file.ReadAt(made.page, made.at); err != nil {
		return nil, err
	}
	made.page[made.byte] ^= 1 << made.bit
	if _, err := file.WriteAt(made.page[made.byte:made.byte+1], at); err != nil {
		return nil, err
	}
	return made, file.Sync()
}
