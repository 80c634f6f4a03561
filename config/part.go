package config

import (
	"slices"
	"strings"
)

// Part has the sections and keys of a program that is not a node.
type Part []string

// The parts. Their flags have no prefix "conductor-".
var (
	ConductorPart = Part{"drain_timeout", "sessions.ttl", "limits", "conductor", "handlers", "secrets", "traces", "log"}
	WorkerPart    = Part{"handlers"}
)

// ofNodes are keys of the parts' sections that apply only to nodes. For conductor.value_keys, all
// commands have their own flag.
var ofNodes = []string{"conductor.enabled", "conductor.value_keys"}

func (p Part) rows() (rows []setting) {
	for _, row := range table() {
		section, _, _ := strings.Cut(row.key, ".")
		if slices.Contains(ofNodes, row.key) || !slices.Contains(p, row.key) && !slices.Contains(p, section) {
			continue
		}
		row.short = strings.TrimPrefix(row.flag(), "conductor-")
		rows = append(rows, row)
	}
	return rows
}

// Settings lists the keys of the part.
func (p Part) Settings() []Setting { return listed(p.rows()) }

// Load is like the function Load, for the keys of the part only. Another key in the file is a fault.
// Other fields of the Config have their defaults.
func (p Part) Load(path string, env []string, flags map[string]string) (Config, error) {
	return loadRows(p.rows(), path, env, flags)
}
