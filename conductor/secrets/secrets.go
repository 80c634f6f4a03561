// Package secrets reads the secrets of steps for a conductor, from files, environment variables
// and a command, in this order. The first source that has a secret wins.
//
//   - A file of the directory: BOARD/NAME for the jobs of one board, or NAME for the jobs of all boards. The board's
//     file wins. Only its owner and its group may have access to it. Links must stay within the directory.
//   - An environment variable: the prefix, then the name in capital letters, with underscores in
//     place of dots and dashes. It is for the jobs of all boards.
//   - The command gets board and name as its arguments, and prints the secret. A status other
//     than 0 is a failure; without output, the command does not have the secret.
//
// The directory of a board belongs to that board. Options.Boards sets the boards of all other
// secrets.
//
// One line break at the end of a file or an output is not part of the secret. Nothing is cached: each attempt at a step
// reads its secrets, so a changed secret applies from the next attempt on.
//
// A job can name every secret of its board, and the shared secrets that its board may name. A
// caller that may post to a board can therefore make the conductor's handlers use them, and its
// own step workers read them.
package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

const (
	// commandTimeout limits a call of the command, because a step waits for it.
	commandTimeout = 10 * time.Second
	// outputDelay limits the wait for the output of processes that a killed command has started.
	outputDelay = time.Second
	// readLimit is one byte more than a secret of the largest size with a line break, so that
	// a longer secret is detected.
	readLimit = int64(engine.MaxSecret + len("\r\n") + 1)
)

// validName matches the names of secrets. A name is part of a path and of a variable.
var validName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,126}$`)

// Options are the sources. An empty one has no secrets.
type Options struct {
	Directory   string // absolute path
	Environment string // prefix of variables
	Command     string // absolute path of an executable
	// Boards lists, by board, the secrets that its jobs may name in addition to the files of the board's directory. A
	// key is a board or a prefix of boards and *; a name can also be a prefix and *. Nil: all boards, all names.
	Boards map[string][]string

	// Run starts a command and waits for it. Default: its own Run.
	Run func(*exec.Cmd) error
}

// Source has the secrets of a conductor. It may be used concurrently.
type Source struct {
	options   Options
	directory *os.Root // nil: none
}

// Open opens the directory and looks for the command. Close closes the Source.
func Open(options Options) (*Source, error) {
	s := &Source{options: options}
	if options.Run == nil {
		s.options.Run = (*exec.Cmd).Run
	}
	if options.Command != "" {
		if !filepath.IsAbs(options.Command) {
			return nil, fmt.Errorf("cannot use the command for secrets %q: it must be an absolute path", options.Command)
		}
		if _, err := exec.LookPath(options.Command); err != nil {
			return nil, fmt.Errorf("cannot use the command for secrets: %w", err)
		}
	}
	if options.Directory != "" {
		var err error
		if s.directory, err = os.OpenRoot(options.Directory); err != nil {
			return nil, fmt.Errorf("cannot use the directory of secrets: %w", err)
		}
	}
	return s, nil
}

// Close closes the directory.
func (s *Source) Close() error {
	if s.directory == nil {
		return nil
	}
	return s.directory.Close()
}

// Secret returns a secret for a job of a board, as conductor.Options.Secrets does. Errors:
// logbook.ErrNotFound if no source has it, logbook.ErrInvalid for an impossible name.
func (s *Source) Secret(ctx context.Context, board, name string) (string, error) {
	if !validName.MatchString(name) {
		return "", &logbook.InvalidError{Field: "name of a secret",
			Reason: "it must have 1 to 127 letters, digits, dots, dashes and underscores, and must not start with a dot or dash"}
	}
	sources := []func(context.Context, string, string) ([]byte, error){s.fileOfBoard}
	shared := s.mayName(board, name)
	if shared {
		sources = append(sources, s.file, s.variable, s.output)
	}
	for _, source := range sources {
		secret, err := source(ctx, board, name)
		if err != nil {
			return "", err
		}
		if secret = trimLineBreak(secret); len(secret) > 0 {
			return string(secret), nil
		}
	}
	if !shared {
		return "", fmt.Errorf("%w: board %q has no permission for it: add it to secrets.boards of the conductor, as in %q = [%q]", logbook.ErrNotAllowed, board, board, name)
	}
	return "", fmt.Errorf("%w: this conductor has no secret of this name for the board %q", logbook.ErrNotFound, board)
}

// mayName reports whether jobs of a board may name a secret that is not in the board's directory.
func (s *Source) mayName(board, name string) bool {
	for boards, names := range s.options.Boards {
		if access.Covers(boards, board) && slices.ContainsFunc(names, func(own string) bool { return access.Covers(own, name) }) {
			return true
		}
	}
	return s.options.Boards == nil
}

func trimLineBreak(secret []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(secret, []byte("\n")), []byte("\r"))
}

// fileOfBoard reads the file in a board's directory. The name of a board may have any characters. A name such
// as a/../b, which changes when its path is cleaned, must not reach the secrets of another board.
func (s *Source) fileOfBoard(_ context.Context, board, name string) ([]byte, error) {
	if !filepath.IsLocal(board) || filepath.Clean(board) != board || board == "." {
		return nil, nil
	}
	return s.read(filepath.Join(board, name))
}

func (s *Source) file(_ context.Context, _, name string) ([]byte, error) { return s.read(name) }

// read reads a file; nil: missing, or the directory of a board.
func (s *Source) read(path string) ([]byte, error) {
	if s.directory == nil {
		return nil, nil
	}
	info, err := s.directory.Stat(path) // before opening it, because opening a pipe blocks
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), err == nil && info.IsDir():
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read its file: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("cannot read its file: %s is not a regular file", path)
	case info.Mode().Perm()&0o007 != 0:
		return nil, fmt.Errorf("its file %s has mode %04o, which allows other users access: set it to 0600 or 0640", path, info.Mode().Perm())
	}
	file, err := s.directory.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read its file: %w", err)
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, readLimit))
}

func (s *Source) variable(_ context.Context, _, name string) ([]byte, error) {
	if s.options.Environment == "" {
		return nil, nil
	}
	return []byte(os.Getenv(s.options.Environment + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(name)))), nil
}

// output runs the command. Its stderr is not recorded, because it can contain secrets.
func (s *Source) output(ctx context.Context, board, name string) ([]byte, error) {
	if s.options.Command == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	var output bounded
	command := exec.CommandContext(ctx, s.options.Command, board, name)
	command.Dir, command.Stdout, command.WaitDelay = "/", &output, outputDelay
	switch err := s.options.Run(command); {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the command for secrets did not end within %s: %w", commandTimeout, context.Cause(ctx))
	case err != nil:
		return nil, fmt.Errorf("the command for secrets failed (%w): run %s %q %q by hand to see the cause", err, s.options.Command, board, name)
	}
	return output.kept, nil
}

// bounded stores only as much output as is needed to detect a secret over its limit.
type bounded struct{ kept []byte }

func (b *bounded) Write(data []byte) (int, error) {
	b.kept = append(b.kept, data[:min(len(data), int(readLimit)-len(b.kept))]...)
	return len(data), nil
}
