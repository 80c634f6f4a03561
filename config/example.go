package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// WriteCommented returns a configuration file. Keys with their default are comments.
func WriteCommented(c Config) string { return write(c, true) }

// Write returns a configuration file, without keys that have their default.
func Write(c Config) string { return write(c, false) }

// write returns a configuration file. If whole, keys with their default are comments.
func write(c Config, whole bool) string {
	var file strings.Builder
	file.WriteString("# Configuration of a conductord node. Lines that are commented out show the\n" +
		"# defaults. Every key is also a flag and an environment variable: data_dir is\n" +
		"# --data-dir and CONDUCTORD_DATA_DIR.\n\n")
	defaults := Default()
	section := ""
	for _, row := range table() {
		text, standard := "", ""
		if row.key != "cluster.members" {
			text, standard = tomlOf(row.target(&c)), tomlOf(row.target(&defaults))
			if text == standard && !whole {
				continue
			}
		}
		key := row.key
		if table, inner, nested := strings.Cut(row.key, "."); nested {
			if key = inner; table != section {
				fmt.Fprintf(&file, "[%s]\n", table)
				section = table
			}
		}
		if row.key == "cluster.members" {
			writeMembers(&file, c.Cluster.Members)
			continue
		}
		fmt.Fprintf(&file, "# %s.\n", row.doc)
		if text == standard {
			key = "#" + key
		}
		fmt.Fprintf(&file, "%s = %s\n\n", key, text)
	}
	return strings.TrimRight(file.String(), "\n") + "\n"
}

func writeMembers(file *strings.Builder, members []Member) {
	file.WriteString("# The nodes of the cluster: alike in the files of all of them. raft is where\n" +
		"# they find each other, api where clients do.\n")
	for _, member := range members {
		fmt.Fprintf(file, "[[cluster.members]]\nname = %s\nraft = %s\napi = %s\n\n",
			strconv.Quote(member.Name), strconv.Quote(member.Raft), strconv.Quote(member.API))
	}
}

// tomlOf writes a value as TOML. For the plain texts of a configuration, Go's quoting is valid
// TOML.
func tomlOf(target any) string {
	switch value := target.(type) {
	case *string, *time.Duration:
		return strconv.Quote(textOf(target))
	case *[]string:
		quoted := make([]string, 0, len(*value))
		for _, item := range *value {
			quoted = append(quoted, strconv.Quote(item))
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case *PerBoard:
		entries := make([]string, 0, len(*value))
		for _, boards := range slices.Sorted(maps.Keys(*value)) {
			names := (*value)[boards]
			entries = append(entries, strconv.Quote(boards)+" = "+tomlOf(&names))
		}
		return "{" + strings.Join(entries, ", ") + "}"
	}
	return textOf(target)
}
