package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"

	"github.com/conductord/conductord/logbook"
)

// maxProfiles limits the file of profiles, in bytes: a larger file is something else.
const maxProfiles = 1 << 20

// profileKeys are the keys of a profile.
var profileKeys = []string{"server", "ca_file", "cert_file", "key_file", "token_file", "value_keys"}

// profiles is the file of profiles. A key such as ca_file is a default for the variable
// CONDUCTORD_CA_FILE, which takes precedence. Secrets stay in the files that profiles name.
type profiles struct {
	Current  string                       `toml:"current,omitempty" json:"current,omitempty"`
	Profiles map[string]map[string]string `toml:"profiles" json:"profiles"`
}

// profiles reads the file of profiles. Without a file there are no profiles.
func (p *Program) profiles() (saved profiles, path string, err error) {
	saved.Profiles = map[string]map[string]string{}
	if p.ConfigDir == "" {
		return saved, "", nil
	}
	path = filepath.Join(p.ConfigDir, "conductord", "profiles.toml")
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return saved, path, nil
	}
	if err == nil {
		defer file.Close()
		var text []byte
		if text, err = io.ReadAll(io.LimitReader(file, maxProfiles+1)); err == nil {
			saved, err = parseProfiles(text)
		}
	}
	if err != nil {
		return saved, path, UsageError(fmt.Errorf("cannot read the profiles in %s: %w", path, err))
	}
	return saved, path, nil
}

// parseProfiles reads the text of the file.
func parseProfiles(text []byte) (profiles, error) {
	saved := profiles{Profiles: map[string]map[string]string{}}
	if len(text) > maxProfiles {
		return saved, &logbook.LimitError{Field: "file of profiles", Limit: maxProfiles, Size: int64(len(text)), Unit: "bytes or more"}
	}
	meta, err := toml.Decode(string(text), &saved)
	if err != nil {
		return saved, err
	}
	for _, key := range meta.Keys() {
		if known := len(key) == 1 && (key[0] == "current" || key[0] == "profiles") ||
			len(key) == 2 || len(key) == 3 && slices.Contains(profileKeys, key[2]); !known {
			return saved, fmt.Errorf("the key %.128q is unknown; the keys are current, and for each profile %s", key, strings.Join(profileKeys, ", "))
		}
	}
	for name, profile := range saved.Profiles {
		if profile == nil { // an empty table would not be written
			saved.Profiles[name] = map[string]string{}
		}
	}
	return saved, nil
}

// text is the file's text. It refuses profiles that could not be read again.
func (s *profiles) text() ([]byte, error) {
	var text bytes.Buffer
	if err := toml.NewEncoder(&text).Encode(s); err != nil {
		return nil, err
	}
	_, err := parseProfiles(text.Bytes())
	return text.Bytes(), err
}

// check returns an error unless a profile has the name.
func (s *profiles) check(name string) error {
	if _, known := s.Profiles[name]; !known {
		known := strings.Join(slices.Sorted(maps.Keys(s.Profiles)), ", ")
		return UsageError(fmt.Errorf("there is no profile %.64q; the profiles are: %s", name, OrDash(known)))
	}
	return nil
}

// UseProfile returns the profile in force, and uses its values for variables that are not set.
// --profile or CONDUCTORD_PROFILE names the profile. Otherwise it is the current profile,
// unless flags or environment name servers or a topology. Empty: no profile is in force.
func (p *Program) UseProfile() (name string, err error) {
	saved, _, err := p.profiles()
	name = cmp.Or(p.Profile, p.Value("CONDUCTORD_PROFILE"))
	if name == "" && len(p.servers) == 0 && p.topologyFile() == "" && p.Value("CONDUCTORD_SERVER") == "" {
		name = saved.Current
	}
	if err != nil || name == "" {
		return "", err
	}
	p.Profile, p.profileValues = name, saved.Profiles[name]
	if p.Value("CONDUCTORD_TOKEN") != "" {
		delete(p.profileValues, "token_file")
	}
	return name, saved.check(name)
}

// ProfileCommand manages profiles.
func (p *Program) ProfileCommand() *cobra.Command {
	verb := func(use, short, done string, change func(saved *profiles, name string) error) *cobra.Command {
		return &cobra.Command{
			Use: use + " NAME", Short: short, Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error {
				saved, path, err := p.profiles()
				if err != nil {
					return err
				}
				if err := cmp.Or(logbook.MaxLimits.CheckName("profile", args[0]), change(&saved, args[0])); err != nil {
					return UsageError(err)
				}
				if err := saved.write(path); err != nil {
					return fmt.Errorf("cannot write the profiles: %w", err)
				}
				return p.Show(map[string]string{done: args[0]}, "%s profile %s", done, args[0])
			},
		}
	}
	return Noun("profile", "Manage profiles: saved servers and credentials of clusters",
		verb("save", "Save the servers and credential files of flags and environment as a profile", "saved", func(saved *profiles, name string) error {
			saved.Profiles[name] = p.named()
			return nil
		}),
		verb("use", "Set the default profile for commands without --profile and --server", "used", func(saved *profiles, name string) error {
			saved.Current = name
			return saved.check(name)
		}),
		verb("delete", "Delete a profile; its certificate and token files stay", "deleted", func(saved *profiles, name string) error {
			err := saved.check(name)
			if delete(saved.Profiles, name); saved.Current == name {
				saved.Current = ""
			}
			return err
		}),
		&cobra.Command{
			Use: "list", Short: "List profiles, and mark the current one", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return p.listProfiles() },
		})
}

// named returns a profile with the values of the given flags and variables.
func (p *Program) named() map[string]string {
	files := p.credentials()
	named := map[string]string{
		"server": strings.Join(p.endpoints(), ","), "ca_file": files.CA, "cert_file": files.Cert, "key_file": files.Key,
		"token_file": cmp.Or(p.tokenFile, p.Value("CONDUCTORD_TOKEN_FILE")), "value_keys": p.ValueKeys(),
	}
	for key, text := range named {
		if text == "" {
			delete(named, key)
		} else if absolute, err := filepath.Abs(text); err == nil && key != "server" {
			named[key] = absolute
		}
	}
	return named
}

// write replaces the whole file.
func (s *profiles) write(path string) error {
	if path == "" {
		return errors.New("cannot find the directory of profiles: set HOME")
	}
	text, err := s.text()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "profiles-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

func (p *Program) listProfiles() error {
	saved, _, err := p.profiles()
	if err != nil {
		return err
	}
	if p.JSON() {
		return p.WriteJSON(saved)
	}
	inForce, err := p.UseProfile()
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(saved.Profiles)) {
		row := []string{name, "-"}
		if name == inForce {
			row[1] = "yes"
		}
		for _, key := range []string{"server", "ca_file", "cert_file", "token_file"} {
			row = append(row, OrDash(saved.Profiles[name][key]))
		}
		rows = append(rows, row)
	}
	return errors.Join(p.WriteTable([]string{"name", "in force", "servers", "ca", "certificate", "token"}, rows), err)
}
