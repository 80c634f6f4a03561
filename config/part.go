package config

import (
	"slices"
	"strings"
)

// Part is the settings of a program that is no node: the sections and keys that it has.
type Part []string

// The parts. Their flags are without "conductor-".
var (
	ConductorPart = Part{"drain_timeout", "sessions.ttl", "limits", "conductor", "handlers", "secrets", "traces", "log"}
	WorkerPart    = Part{"handlers"}
)

// ofNodes are the keys of the sections of a Part that mean something to a node only. The keys
// for values are a flag of all commands.
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

// Load is the function Load for the keys of the part. Any other key in the file is a fault, and
// the other fields of the Config have their defaults.
func (p Part) Load(path string, env []string, flags map[string]string) (Config, error) {
	return loadRows(p.rows(), path, env, flags)
}
