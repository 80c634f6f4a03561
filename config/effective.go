package config

import (
	"fmt"
	"net/url"
)

// Value is a setting as it is in force. Texts are as flag and variable take them.
type Value struct {
	Key     string `json:"key"`
	Value   string `json:"value"` // of a URL with a password, without that
	Default string `json:"default"`
	Origin  string `json:"origin"` // FILE:LINE, the variable, the flag, or "default"
}

// Effective is Load, and tells the value of every key and where it comes from.
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
