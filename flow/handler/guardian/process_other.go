//go:build !unix

package guardian

import (
	"errors"
	"os/exec"
)

func command() (*exec.Cmd, error) { return nil, errors.ErrUnsupported }
