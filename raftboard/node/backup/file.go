package backup

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// WriteFile writes a file whose name appears when the content is complete and on disk. Only its
// owner can read the file. It replaces a file of the same name.
func WriteFile(path string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	if err := errors.Join(write(file), file.Sync(), file.Close()); err != nil {
		return err
	}
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer directory.Close()
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	if err := directory.Sync(); err != nil {
		return errors.Join(err, os.Rename(path, file.Name()))
	}
	return nil
}
