package local

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Build compiles the conductord program into the file binary, with the dependency versions of
// conductord's own module. The working directory must be in a module that requires conductord.
func Build(ctx context.Context, binary string) error {
	folder, err := output(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/conductord/conductord"))
	if err != nil {
		return fmt.Errorf("cannot find conductord's module: %w", err)
	}
	compile := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/conductord")
	compile.Dir = strings.TrimSpace(folder)
	if _, err := output(compile); err != nil {
		return fmt.Errorf("cannot build conductord: %w", err)
	}
	return nil
}

// output runs a command. The error contains what the command wrote to stderr.
func output(command *exec.Cmd) (string, error) {
	var stderr strings.Builder
	command.Stderr = &stderr
	stdout, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return string(stdout), nil
}
