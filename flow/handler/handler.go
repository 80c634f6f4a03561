// Package handler runs a step that is an executable, in any language: the arguments are JSON on
// stdin, the result is JSON on stdout.
//
// A Set is the handlers of a daemon: the executables in its handler directories, found by name
// only. A Task connects a name of the set to a step; a second name is the handler of its revert.
//
// # Input
//
// Stdin has one JSON object in one line: the step's arguments by name. A revert gets the same
// object with four more fields. Their names start with a dollar sign, so they differ from all arguments:
//
//	$result    the result of the execution, null if it failed or is unknown
//	$failure   the step's own failure, null if it did not fail
//	$failures  every failure of the flow by step
//	$cause     why the step is reverted: see logbook.RevertCause
//
// A finally step (flow.Flow.Finally) and an on_error step (flow.Flow.OnError) have $cause, too: null if the flow has
// succeeded.
//
// The environment has these variables, and inherits nothing from the daemon:
//
//	PATH, LANG, TZ, HOME, TMPDIR   fixed; the last two name the working directory
//	CONDUCTORD_HANDLER   path at which the handler was found ($0 does not have it)
//	CONDUCTORD_JOB, CONDUCTORD_FLOW, CONDUCTORD_STEP   identity of the call
//	CONDUCTORD_ACTION    execute or revert
//	CONDUCTORD_ATTEMPT   counts from 1, including attempts that a crash cut off
//	CONDUCTORD_TRY, CONDUCTORD_TRIES   failures of this round plus one, and the maximum of tries in the step's policy
//	CONDUCTORD_LAST_FAILURE, CONDUCTORD_LAST_FAILURE_KIND   message and kind of the failure of the previous try; unset in the first one
//	CONDUCTORD_CAUSE, CONDUCTORD_CAUSE_BY, CONDUCTORD_CAUSE_REASON   for a revert, a finally step or an on_error step, the fields of $cause; without a value, unset
//	CONDUCTORD_ASKED     number of times that this attempt has answered "not yet"
//	CONDUCTORD_FENCE     generation-index, the fencing token of the claim; CONDUCTORD_TOKEN is a client's access token
//	CONDUCTORD_KEY       the same in every attempt, for systems that recognise repeats: see flow.Call.Key
//	TRACEPARENT          the W3C trace context of this attempt's span; only where the conductor traces
//
// Each run has its own working directory, empty at first and removed afterwards. The removal does not follow links, and
// delays the step by one second at most; the rest is removed in the background. If the process is killed before the
// removal, the next process that calls Open removes the directory (see Scratch). A handler's command line has the
// arguments of Argv, none by default. No shell is involved.
//
// # Answer
//
// Status 0 means success. Stdout then holds one JSON value, or nothing for null. The value must
// pass logbook.Limits.CheckValue.
//
// Status 75 (EX_TEMPFAIL) requests another attempt. Status 65 (EX_DATAERR) means that another attempt is
// useless. Every other status is a failure like 75, tried again as often as the step's policy
// allows. The lines of stderr can be read while the handler runs (flow.Output), and their end is
// kept with the attempt.
//
// A handler that fails can print an object with details of its failure. All fields are optional,
// and causes are objects like it:
//
//	{"failure": {"kind": "card.declined", "message": "no", "details": {"limit": 40}, "stack": "", "causes": []}}
//
// A handler that waits for something that it has started ends with status 75 and prints an
// object. not_yet is the time until the handler runs again; details are optional, for display:
//
//	{"not_yet": "30s", "details": {"build": 4711}}
//
// This is not a failure, and does not count as an attempt (flow.NotYet). The handler then runs again, to execute or to
// revert as before, and CONDUCTORD_ASKED counts these runs.
//
// A running handler can write its progress to file descriptor 3, at any rate, one JSON object per
// line. done and total are whole numbers; total and details are optional.
//
//	{"done": 3, "total": 10, "details": {"file": "c.tar"}}
//
// The last line wins (flow.Call.Progress). A line can also be a checkpoint (flow.Call.Checkpoint):
//
//	{"checkpoint": {"name": "row", "value": 7}}
//
// File descriptor 4 has a line for each checkpoint when it is durable, or with an error. The handler need not read it.
// The next attempt gets all checkpoints of the round as $checkpoints, and the last progress of the previous attempt as
// $progress. Any other line, and a line over 68 KiB, is ignored.
//
// # Guarantees
//
// A handler runs in its own process group. When the context ends, the group gets SIGTERM, and
// SIGKILL after a grace. The group is also killed when the handler writes more than a result may
// hold. When the handler has ended, the rest of the group is killed. Memory is bounded whatever a
// handler writes.
//
// If the program dies, even by SIGKILL, package guardian kills the groups of all handlers, and processes that they have
// left outside their groups. If no guardian can start, no handler starts. If the guardian is killed with the program,
// the kernel kills the handlers' own processes (Linux), and the next program's Confine kills the rest.
//
// If the program calls ReapOrphans, processes that a handler has left outside its group, by
// setsid, are also killed when the handler has ended. They are found by their cgroup, if Confine
// makes cgroups, and otherwise by HOME in their environment: a process that removes HOME
// survives. ReapOrphans also collects their zombies; the first process of a container must call
// it. Other systems than Linux find no such process.
//
// Confine also restricts privileges: another user, no new privileges, limits.
package handler

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/conductord/conductord/flow/handler/guardian"
	"github.com/conductord/conductord/logbook"
)

// namePattern excludes separators, a leading dot and everything that a shell or a terminal would
// interpret.
var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// MaxNames limits the listing of one directory.
const MaxNames = 10_000

// CheckName refuses a text that cannot be the name of a handler.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return &logbook.InvalidError{
			Field:  "handler name",
			Reason: fmt.Sprintf("%.80q; a name has 1 to 64 of a-z, 0-9, dot, underscore and hyphen, and starts with a letter or digit", name),
		}
	}
	return nil
}

// Set is the handlers in some directories. It reads the directories whenever it needs them, so
// you can install, replace or remove a handler while the daemon runs. All methods may be called
// concurrently.
type Set struct {
	directories []string // absolute, in the order of the search
	children    children
	swept       sync.Map // directories that a goroutine is about to sweep
}

// stepPrefix is the prefix of the names of working directories.
const stepPrefix = "conductord-step-"

// Open checks the directories and returns the set of their handlers. If two directories have a
// handler of one name, the first wins. Open and each run refuse a directory that users other
// than root and the daemon's own user can write to or replace. Such users could run anything as
// the daemon. Open reports all faults.
//
// Open removes the working directories that killed processes have left in os.TempDir. On Linux,
// it marks the descriptors that this process was started with as close-on-exec, so that no
// handler inherits them.
func Open(directories ...string) (*Set, error) {
	sealDescriptors()
	set := &Set{children: children{removed: make(chan struct{}, 1)}}
	set.children.guardian = guardian.New(func(command *exec.Cmd) error { return set.children.start(command, command.Start) }, set.children.remove)
	_ = set.Sweep("", stepPrefix) // remaining directories are harmless
	var faults []error
	for _, directory := range directories {
		absolute, err := filepath.Abs(directory)
		if err == nil {
			err = checkDirectory(absolute)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("cannot use the handler directory %s: %w", directory, err))
			continue
		}
		set.directories = append(set.directories, absolute)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return set, nil
}

// Directories are the directories of the set, in order.
func (s *Set) Directories() []string { return slices.Clone(s.directories) }

// Names lists the handlers that can be run, sorted. It leaves out files that would be refused;
// Check returns the reason.
func (s *Set) Names() []string {
	names := map[string]bool{}
	for _, directory := range s.directories {
		for _, name := range candidates(directory) {
			if s.Has(name) {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func candidates(directory string) []string {
	opened, err := os.Open(directory)
	if err != nil {
		return nil
	}
	defer opened.Close()
	// List the names that were read before an error: a listing is for display, and every run
	// looks its handler up again.
	names, _ := opened.Readdirnames(MaxNames)
	return names
}

// Has reports whether the set has a handler of that name that can be run.
func (s *Set) Has(name string) bool { return s.Check(name) == nil }

// Check returns the reason why a handler cannot be run: logbook.ErrInvalid for an impossible
// name, logbook.ErrNotFound with the searched directories, or logbook.ErrNotAllowed for a file
// that is not safe to run.
func (s *Set) Check(name string) error {
	file, _, err := s.open(name)
	if err != nil {
		return err
	}
	return file.Close()
}

// open finds a handler and opens it. It checks the opened file, and exactly that file runs,
// even if the path is replaced afterwards.
func (s *Set) open(name string) (*os.File, string, error) {
	if err := CheckName(name); err != nil {
		return nil, "", err
	}
	for _, directory := range s.directories {
		file, err := openIn(directory, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		path := filepath.Join(directory, name)
		if err != nil {
			// A handler of the same name in a later directory does not replace it: an operator
			// must notice that a broken one shadows it.
			return nil, "", fmt.Errorf("cannot run the handler %s: %w", path, err)
		}
		return file, path, nil
	}
	return nil, "", fmt.Errorf("handler %q: %w in %s", name, logbook.ErrNotFound, s.where())
}

func (s *Set) where() string {
	if len(s.directories) == 0 {
		return "any directory: none is configured"
	}
	return strings.Join(s.directories, ", ")
}

// openIn opens a name below a directory; os.Root refuses links that lead out
// of it. The directory is opened anew each time, so that an operator can
// replace it as a whole.
func openIn(directory, name string) (*os.File, error) {
	if err := checkDirectory(directory); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, err := root.OpenFile(name, openFlags, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", logbook.ErrNotAllowed, err)
	}
	if err := checkFile(file); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// checkDirectory refuses a directory whose content others can change, or which
// they can replace as a whole.
func checkDirectory(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return refuse("it is not a directory")
	}
	if err := checkAccess(info); err != nil || !checksModes {
		return err
	}
	return checkWay(path)
}

// checkWay follows an absolute path as the kernel does, and refuses it if other users can
// replace the next element. In a directory with the sticky bit, such as /tmp, only the owners
// of the entry and of the directory can replace an entry.
func checkWay(path string) error {
	const separator = string(filepath.Separator)
	at := separator
	for rest := strings.Split(path, separator); len(rest) > 0; {
		next := filepath.Join(at, rest[0]) // at has no links in it, so .. may be joined
		rest = rest[1:]
		info, err := os.Lstat(next)
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSticky != 0 || info.Mode()&fs.ModeSymlink != 0 {
			err = checkOwner(info)
		} else {
			err = checkAccess(info)
		}
		if err != nil {
			return fmt.Errorf("other users can replace it through %s: %w", next, err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		target, err := os.Readlink(next)
		if err != nil {
			return err
		}
		if filepath.IsAbs(target) {
			at = separator
		}
		rest = append(strings.Split(target, separator), rest...)
	}
	return nil
}

func checkFile(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return refuse("it is not a regular file")
	case mode&(fs.ModeSetuid|fs.ModeSetgid) != 0:
		return refuse("it is setuid or setgid")
	case !executable(mode):
		return refuse("it is not executable")
	}
	return checkAccess(info)
}

func checkAccess(info fs.FileInfo) error {
	const othersWrite = 0o022
	if checksModes && info.Mode().Perm()&othersWrite != 0 {
		return refuse(fmt.Sprintf("its mode %04o allows its group or other users to write to it (run chmod go-w)", info.Mode().Perm()))
	}
	return checkOwner(info)
}

func checkOwner(info fs.FileInfo) error {
	if !trustedOwner(info) {
		return refuse("its owner is neither root nor the daemon's user")
	}
	return nil
}

func refuse(why string) error { return fmt.Errorf("%w: %s", logbook.ErrNotAllowed, why) }
