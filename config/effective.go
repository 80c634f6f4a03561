package config

import (
	"fmt"
	"net/url"
)

// Value is the value of a setting in use. Its texts have the form of flags and variables.
type Value struct {
	Key     string `json:"key"`
	Value   string `json:"value"` // in a URL, a password is replaced
	Default string `json:"default"`
	Origin  string `json:"origin"` // FILE:LINE, the variable, the flag, or "default"
}

// Effective loads a configuration as Load does, and returns the value of every key with its origin.
func Effective(path string, env []string, flags map[string]string) ([]Value, error) {
	l, err := load(table(), path, env, flags)
	if err != nil {
		return nil, err
	}
	var values []Value
	defaults := Default()
	for _, row := range table() {
		value := Value{row.key, textOf(row.target(&l.config)), textOf(row.target(&defaults)), "default"}
		if link, err := url.Parse(value.Value); err == nil && link.User != nil {
			value.Value = link.Redacted()
		}
		if from, given := l.origins[row.key]; given {
			if value.Origin = from.key; from.line > 0 {
				value.Origin = fmt.Sprintf("%s:%d", from.place, from.line)
			}
		}
		values = append(values, value)
	}
	return values, nil
}
