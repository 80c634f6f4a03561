package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/raftboard/node/backup"
)

// Version is the output of the command version.
type Version struct {
	Version  string  `json:"version"`
	Commit   string  `json:"commit,omitempty"`
	Modified bool    `json:"modified,omitempty"` // the files of the commit were changed before the build
	Formats  Formats `json:"formats"`
	Go       string  `json:"go"`
	Platform string  `json:"platform"`
}

// Formats are the numbers of the formats that the program reads and writes.
type Formats struct {
	Log      int `json:"log"`
	Rows     int `json:"rows"`
	Snapshot int `json:"snapshot"`
	Backup   int `json:"backup"`
}

// ProgramVersion reads the build information in the binary.
func ProgramVersion() Version {
	version := Version{
		Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Formats: Formats{Log: command.Version, Rows: fsm.RowsFormat, Snapshot: fsm.SnapshotFormat, Backup: backup.Format},
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version
	}
	if info.Main.Version != "" {
		version.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			version.Commit = setting.Value
		case "vcs.modified":
			version.Modified = setting.Value == "true"
		}
	}
	return version
}

func (p *Program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version, commit and formats of this program",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := ProgramVersion()
			if p.JSON() {
				return p.WriteJSON(v)
			}
			commit := cmp.Or(v.Commit, "unknown")
			if v.Modified {
				commit += ", modified"
			}
			return p.WriteLines([]string{
				"conductord " + v.Version,
				"commit:   " + commit,
				fmt.Sprintf("formats:  log %d, rows %d, snapshot %d, backup %d", v.Formats.Log, v.Formats.Rows, v.Formats.Snapshot, v.Formats.Backup),
				"go:       " + v.Go,
				"platform: " + v.Platform,
			})
		},
	}
}
