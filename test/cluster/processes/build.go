//go:build linux

package processes

import (
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

//go:embed overlay
var overlay embed.FS

// A patch adds lines after some that a file has exactly once.
type patch struct{ file, after, add string }

// BuildOptions configure a build.
type BuildOptions struct {
	Dir    string // for the binary and its sources
	Module string // the folder of the sources; empty: of this program's
	// Plain leaves Go's library unchanged: clocks cannot be moved and disks cannot fail, and
	// the build takes the usual time.
	Plain bool
}

// addition is a file that a build adds to a package.
type addition struct{ name, folder string }

// patches are the changes of a build. All faults are in Go's own library, so the product needs
// no switches, and no part of it can avoid the faults.
func (o BuildOptions) patches(library string) ([]addition, []patch) {
	adds := []addition{{"fsm_digest", filepath.Join(o.Module, "fsm")}, {"main_digest", filepath.Join(o.Module, "cmd/conductord")}}
	changes := []patch{{filepath.Join(o.Module, "fsm/fsm.go"), "func (m *Machine) initialise() (err error) {\n", "\tFaultMachine.Store(m)\n"}}
	if o.Plain {
		return adds, changes
	}
	const sync = "\tif FaultSync != nil {\n\t\tif done, err := FaultSync(); done {\n\t\t\treturn err\n\t\t}\n\t}\n"
	calls := filepath.Join(library, "syscall/zsyscall_linux_"+runtime.GOARCH+".go")
	return append(adds,
			addition{"time_faults", filepath.Join(library, "time")},
			addition{"syscall_faults", filepath.Join(library, "syscall")},
			addition{"main_faults", filepath.Join(o.Module, "cmd/conductord")},
		), append(changes,
			patch{filepath.Join(library, "time/time.go"), "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", "\tsec, nsec = faultyWall(sec, nsec)\n"},
			patch{calls, "func Fdatasync(fd int) (err error) {\n", sync},
			patch{calls, "func Fsync(fd int) (err error) {\n", sync},
		)
}

// Build builds conductord for the harness. The binary reports the digest of its state, and can
// have faults: a wall clock that can be set at any time, and an fsync that can be slow, fail
// or hang. The first build with faults compiles Go's library and takes a minute or two; later
// builds use Go's build cache.
func Build(o BuildOptions) (binary string, err error) {
	library, err := goEnv("GOROOT")
	if err != nil {
		return "", err
	}
	library = filepath.Join(library, "src")
	if o.Module == "" {
		file, err := goEnv("GOMOD")
		if err != nil {
			return "", err
		}
		o.Module = filepath.Dir(file)
	}
	adds, changes := o.patches(library)
	replace := map[string]string{} // file of the build → its replacement
	for _, add := range adds {
		text, err := overlay.ReadFile("overlay/" + add.name + ".go.txt")
		if err != nil {
			return "", err
		}
		if err := replaceFile(replace, o.Dir, filepath.Join(add.folder, "zz_"+add.name+".go"), string(text)); err != nil {
			return "", err
		}
	}
	if err := applyPatches(replace, o.Dir, changes); err != nil {
		return "", err
	}
	listed, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list := filepath.Join(o.Dir, "overlay.json")
	if err := os.WriteFile(list, listed, 0o600); err != nil {
		return "", err
	}
	binary = filepath.Join(o.Dir, "conductord")
	build := exec.Command("go", "build", "-overlay", list, "-o", binary, "./cmd/conductord")
	build.Dir = o.Module
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build conductord for the harness: %w\n%s", err, output)
	}
	return binary, nil
}

func applyPatches(replace map[string]string, dir string, patches []patch) error {
	texts := map[string]string{}
	for _, p := range patches {
		text, known := texts[p.file]
		if !known {
			data, err := os.ReadFile(p.file)
			if err != nil {
				return err
			}
			text = string(data)
		}
		if strings.Count(text, p.after) != 1 {
			return fmt.Errorf("cannot build conductord for the harness: %s (%s) does not have exactly one %q: mend patches in build.go", p.file, runtime.Version(), p.after)
		}
		texts[p.file] = strings.Replace(text, p.after, p.after+p.add, 1)
	}
	for file, text := range texts {
		if err := replaceFile(replace, dir, file, text); err != nil {
			return err
		}
	}
	return nil
}

// replaceFile writes a file that replaces another in the build.
func replaceFile(replace map[string]string, dir, path, text string) error {
	instead := filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(path)))
	replace[path] = instead
	return os.WriteFile(instead, []byte(text), 0o600)
}

func goEnv(name string) (string, error) {
	output, err := exec.Command("go", "env", name).Output()
	if err != nil {
		return "", fmt.Errorf("cannot ask go for %s: %w", name, err)
	}
	return strings.TrimSpace(string(output)), nil
}
