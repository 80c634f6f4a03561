package handler

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/conductord/conductord/flow/handler/guardian"
)

// Confinement restricts handlers below the rights of the program that runs them. The zero value
// restricts nothing. It works on Linux only.
type Confinement struct {
	// User runs handlers as this user, with its groups. It needs root. The user must be able to
	// reach the directory that Confine is given.
	User string
	// Users replace User for the jobs of some boards. A key is a board, or a prefix of boards and
	// *; the longest match wins. Handlers of different users can neither read each other's
	// working directories, environments and memory, nor trace or signal each other. Handlers of
	// one user can.
	Users map[string]string
	// NoNewPrivileges runs set-uid programs, such as sudo, without the privileges that they would
	// gain.
	NoNewPrivileges bool
	// OpenFiles limits the open files of each process, and FileSize the bytes of a file that it
	// writes. 0: as this program.
	OpenFiles, FileSize int64
	// Cgroups runs each handler in its own cgroup below this program's cgroup. That cgroup must
	// be of version 2 and contain this program only.
	Cgroups bool
	// Memory limits the bytes of all processes of a run together, and Processes their number.
	// They need Cgroups. 0: no limit.
	Memory, Processes int64
}

// confined is a checked confinement.
type confined struct {
	Confinement
	user    *identity            // nil: this program's
	users   map[string]*identity // by boards
	cgroups string               // the directory of the runs' cgroups; empty: none
}

// identity is a user with its groups.
type identity struct {
	uid, gid uint32
	groups   []uint32
}

// Check returns the reason why this process cannot confine handlers like this.
func (c Confinement) Check() error {
	_, err := c.resolve()
	if err == nil && c.Cgroups {
		_, err = ownCgroup()
	}
	return err
}

// resolve looks up the users and their groups.
func (c Confinement) resolve() (*confined, error) {
	resolved := &confined{Confinement: c}
	if !reflect.DeepEqual(c, Confinement{}) && !confines {
		return nil, errors.New("cannot confine handlers: this requires Linux")
	}
	if !c.Cgroups && (c.Memory > 0 || c.Processes > 0) {
		return nil, errors.New("cannot limit the memory and the processes of handlers without cgroups")
	}
	var err error
	if c.User != "" {
		if resolved.user, err = identityOf(c.User); err != nil {
			return nil, fmt.Errorf("cannot run handlers as the user %s: %w", c.User, err)
		}
	}
	resolved.users = make(map[string]*identity, len(c.Users))
	for boards, name := range c.Users {
		if resolved.users[boards], err = identityOf(name); err != nil {
			return nil, fmt.Errorf("cannot run handlers for the boards %s as the user %s: %w", boards, name, err)
		}
	}
	if resolved.othersRun() && (c.OpenFiles > 0 || c.FileSize > 0) && !mayLimitOthers() {
		return nil, errors.New("cannot limit the files of handlers that run as another user without CAP_SYS_RESOURCE")
	}
	return resolved, nil
}

// othersRun reports whether users other than this program's run handlers.
func (c *confined) othersRun() bool { return c.user != nil || len(c.users) > 0 }

// of is the confinement for the jobs of a board.
func (c *confined) of(board string) *confined {
	own, longest := *c, ""
	for boards, user := range c.users {
		prefix, isPrefix := strings.CutSuffix(boards, "*")
		switch {
		case boards == board:
			own.user = user
			return &own
		case isPrefix && strings.HasPrefix(board, prefix) && len(boards) > len(longest):
			own.user, longest = user, boards
		}
	}
	return &own
}

func identityOf(name string) (*identity, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("this requires root")
	}
	found, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	groups, err := found.GroupIds()
	if err != nil {
		return nil, err
	}
	numbers := make([]uint32, 0, len(groups)+2)
	for _, text := range slices.Concat([]string{found.Uid, found.Gid}, groups) {
		number, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, uint32(number))
	}
	return &identity{numbers[0], numbers[1], numbers[2:]}, nil
}

// Confine makes the option that runs handlers confined, with their working directories in
// directory. That directory must belong to this process alone. Confine kills what handlers of an
// earlier process have left running: processes in the cgroups of the directory, and processes
// that have a home in it.
func Confine(c Confinement, directory string) (Option, error) {
	resolved, err := c.resolve()
	if err != nil {
		return nil, err
	}
	if c.Cgroups {
		if resolved.cgroups, err = makeCgroups(directory, c.Memory > 0, c.Processes > 0); err != nil {
			return nil, fmt.Errorf("cannot make cgroups for handlers: %w", err)
		}
		killCgroups(resolved.cgroups)
	}
	guardian.KillAtHome(directory + "/")
	if resolved.othersRun() {
		if err := os.Chmod(directory, traversable); err != nil {
			return nil, err
		}
	}
	return func(s *settings) { s.scratch, s.confined = directory, resolved }, nil
}

// traversable lets the handlers' user reach its own directory, without read access to the
// directories above it.
const traversable = 0o711

// give makes the handlers' user the owner of a new working directory, and lets that user reach it.
func (c *confined) give(held, directory string) error {
	if c.user == nil {
		return nil
	}
	return errors.Join(os.Chmod(held, traversable), os.Chown(directory, int(c.user.uid), int(c.user.gid)))
}
