package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conductord/conductord/internal/meant"
)

// argumentWords are the words of a usage line that stand for arguments: "ID", "[STEP]", "FILE…".
func argumentWords(cmd *cobra.Command) []string {
	words := strings.Fields(cmd.Use)[1:]
	for i, word := range words {
		if strings.HasPrefix(word, "-") || strings.HasPrefix(word, "{") {
			return words[:i]
		}
	}
	return words
}

// explainArguments makes all commands below a command name the missing or superfluous
// argument.
func explainArguments(cmd *cobra.Command) {
	for _, below := range cmd.Commands() {
		explainArguments(below)
	}
	check := cmd.Args
	if check == nil || cmd.HasSubCommands() {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) == nil {
			return nil
		}
		words := argumentWords(cmd)
		for i, word := range words {
			if i >= len(args) && !strings.HasPrefix(word, "[") {
				return fmt.Errorf("%s is missing", strings.Trim(word, "…"))
			}
		}
		return fmt.Errorf("%q is one argument too many", args[min(len(words), len(args)-1)])
	}
}

// flagFault describes a fault of a flag.
func flagFault(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var value *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		var known []string
		cmd.Flags().VisitAll(func(flag *pflag.Flag) { known = append(known, flag.Name) })
		text := "there is no flag --" + unknown.GetSpecifiedName()
		if best := meant.Word(unknown.GetSpecifiedName(), known); best != "" {
			text += "; did you mean --" + best + "?"
		}
		return errors.New(text)
	case errors.As(err, &missing):
		return fmt.Errorf("--%s needs a value: %s", missing.GetFlag().Name, valueText(missing.GetFlag()))
	case errors.As(err, &value) && valueText(value.GetFlag()) != "":
		return fmt.Errorf("--%s must be %s, not %.64q", value.GetFlag().Name, valueText(value.GetFlag()), value.GetValue())
	}
	return err
}

// valueText describes the values of a flag.
func valueText(flag *pflag.Flag) string {
	switch flag.Value.Type() {
	case "int", "int64":
		return "a whole number"
	case "uint", "uint32", "uint64":
		return "a whole number, not negative"
	case "bool":
		return "true or false"
	case "duration":
		return "a duration such as 30s or 5m"
	}
	return flag.Usage
}
