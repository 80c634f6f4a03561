// Command notices writes the licences and notices of everything in a binary: of Go, and of each linked
// module. It reads the modules from the binary, and their files from the module cache.
//
//	go run ./deploy/notices BINARY >THIRD-PARTY-NOTICES
package main

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// licences are the names of files with the terms of use of a module.
var licences = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: notices BINARY")
		os.Exit(2)
	}
	text, err := notices(os.Args[1])
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

func notices(binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	paths, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("cannot ask go for its directories: %w", err)
	}
	root, cache, _ := strings.Cut(strings.TrimSpace(string(paths)), "\n")
	var text bytes.Buffer
	text.WriteString("conductord contains the following software, under the licences that follow.\n")
	err = add(&text, "Go "+info.GoVersion, root)
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		name := module.Path + " " + module.Version
		err = errors.Join(err, add(&text, name, filepath.Join(cache, escaped(module.Path)+"@"+escaped(module.Version))))
	}
	return text.Bytes(), err
}

// escaped is a path in the form of the module cache: each capital letter becomes "!" and the
// small letter.
func escaped(path string) string {
	return regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(path, func(c string) string { return "!" + strings.ToLower(c) })
}

// add writes the licences in a directory. A module without a licence is an error: its terms of use are
// unknown.
func add(text *bytes.Buffer, name, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cannot read the licences of %s: %w", name, err)
	}
	found := false
	for _, entry := range entries {
		if entry.IsDir() || !licences.MatchString(entry.Name()) || strings.HasSuffix(entry.Name(), ".go") {
			continue
		}
		licence, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(text, "\n%s\n%s: %s\n\n%s\n", strings.Repeat("=", 80), name, entry.Name(), bytes.TrimSpace(licence))
	}
	if !found {
		return fmt.Errorf("%s has no licence file in %s", name, dir)
	}
	return nil
}
