// Package cli holds the parts that all commands of conductord share: the program with its flags,
// profiles and connection, lists, tables and other output, names and their completion, and exit
// codes.
//
// A command is a noun and then a verb. A noun has a package below this one, or is with a related noun.
// Its commands are made by functions that take a Program, and package commands adds them to the root.
// Results go to stdout and everything else to stderr; with -o json the result is one JSON document,
// except that watching gives one on each line. The exit code gives the kind of the result (see
// exit.go).
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conductord/conductord/internal/meant"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/credentials"
)

// OperatorName is the user of this command line: user@host.
func OperatorName() string {
	name, host := "unknown", "unknown"
	if who, err := user.Current(); err == nil && who.Username != "" {
		name = who.Username
	}
	if here, err := os.Hostname(); err == nil {
		host = here
	}
	return name + "@" + host
}

const (
	// DefaultServer is the address of a server on this machine.
	DefaultServer = "127.0.0.1:7070"
	// callTimeout limits a command that does not wait for a job.
	callTimeout = 30 * time.Second
	// firstPatience limits the wait for the first answer of any node. Often no server is
	// running, and the user should learn that soon.
	firstPatience = 5 * time.Second
	// callPatience limits the time in which no node can serve a call. It is longer than a
	// change of leader.
	callPatience = 10 * time.Second
	// waitPatience is callPatience for commands that wait for a job: long enough for a restart
	// of nodes.
	waitPatience = 60 * time.Second
	// ProgressPause is the interval at which a waiting command shows its progress.
	ProgressPause = time.Second
)

// Program is the command line with all its dependencies on the outside world, so that tests can
// replace them.
type Program struct {
	In       io.Reader
	Out, Err io.Writer
	Env      []string
	Columns  func() int                 // characters per line of Out, if it is a terminal; nil: not a terminal
	Zone     *time.Location             // time zone of shown times; nil: UTC
	Terminal bool                       // Err is a terminal: progress is drawn on it
	Size     func() (width, height int) // of the terminal; 0: unknown
	// ConfigDir contains the file of profiles, in a subdirectory; empty: there are no profiles.
	ConfigDir string
	// Dial connects to a cluster.
	Dial func(ctx context.Context, options raftboard.Options) (Cluster, error)

	// Commands are the commands of all nouns, from package commands.
	Commands []*cobra.Command

	// The global flags, as given.
	servers   []string
	files     credentials.Files
	tokenFile string
	valueKeys string
	Profile   string
	topology  string
	output    string
	Timeout   time.Duration
	utc       bool
	stale     bool // of the commands that have the flag

	givenProfile string // value of --profile; profile can also come from another source later
	misnamed     error  // error of --help after an unknown verb

	boards  []string  // boards in the command line
	ids     []shortID // ids in the command line, as given
	cluster string    // chosen by the topology from these; empty: not chosen

	profileValues map[string]string // of the profile in use, by key; nil: none

	started bool // the command line was valid: later errors are not usage errors
}

// Run runs one command and returns its exit code. Call it once.
func (p *Program) Run(ctx context.Context, args []string) int {
	root := p.Root()
	root.SetArgs(args)
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	cmd, err := root.ExecuteContextC(ctx)
	err = cmp.Or(err, p.misnamed)
	if err != nil && !p.started {
		err = UsageError(err)
	}
	usage := ""
	if err != nil && !p.started {
		usage = fmt.Sprintf("usage: %s; `%s --help` shows details", cmd.UseLine(), cmd.CommandPath())
	}
	p.report(err, usage)
	return ExitCode(err)
}

// report writes an error, and advice if there is any, to stderr. With -o json, it writes one
// document on one line.
func (p *Program) report(err error, usage string) {
	if err == nil || errors.Is(err, ErrRunFailed) {
		return
	}
	advice := cmp.Or(p.runnable(hint(err)), usage)
	if p.JSON() {
		message := errorMessage(err)
		message.Message = p.plain(message.Message)
		line, failed := Document(errorDocument{Part{Message: message}, advice})
		if failed == nil {
			_, _ = p.Err.Write(append(cleanJSON(line), '\n'))
			return
		}
	}
	if ExitCode(err) == ExitInterrupted {
		fmt.Fprintln(p.Err, "conductord: interrupted")
		return
	}
	for _, line := range strings.Split(p.plain(err.Error()), "\n") {
		fmt.Fprintln(p.Err, "conductord: "+Clean(line))
	}
	if advice == "" && p.Terminal {
		advice = codeHint(err)
	}
	if advice != "" {
		p.Note("%s", advice)
	}
}

// plain replaces the text of a timed-out call by plain words.
func (p *Program) plain(text string) string {
	over := "timed out"
	if p.Timeout > 0 {
		over += " after " + p.Timeout.String()
	}
	return strings.ReplaceAll(text, context.DeadlineExceeded.Error(), over)
}

// runnable makes the commands of an advice work as printed: it adds the servers, the profile and
// the topology file that flags name.
func (p *Program) runnable(advice string) string {
	flags := ""
	if len(p.servers) > 0 {
		flags = " --server " + strings.Join(p.endpoints(), ",")
	}
	if p.givenProfile != "" {
		flags += " --profile " + Quoted(p.givenProfile)
	}
	return quotedCommand.ReplaceAllStringFunc(advice, func(command string) string {
		switch {
		case strings.HasPrefix(command, "`conductord dev"), strings.HasPrefix(command, "`conductord cert"):
			return command
		case strings.HasPrefix(command, "`conductord topology") && p.topology != "":
			return strings.TrimSuffix(command, "`") + " --topology " + Quoted(p.topology) + "`"
		case strings.HasPrefix(command, "`conductord topology"):
			return command
		}
		if words, name, found := strings.Cut(command, " -- "); found {
			return words + flags + " -- " + name
		}
		return strings.TrimSuffix(command, "`") + flags + "`"
	})
}

// quotedCommand finds the commands in an advice.
var quotedCommand = regexp.MustCompile("`conductord [^`]*`")

// Note prints a note that is not part of the result.
func (p *Program) Note(format string, args ...any) {
	fmt.Fprintln(p.Err, "conductord: "+Clean(fmt.Sprintf(format, args...)))
}

// Root makes the tree of all commands, for Run and for documents.
func (p *Program) Root() *cobra.Command {
	root := &cobra.Command{
		Use:   "conductord",
		Short: "Durable workflows from one binary and no database",
		Long: "Run durable workflows on a cluster of identical conductord nodes. The nodes replicate jobs and flow records with\n" +
			"Raft. The conductor of each node claims jobs and runs their flows; any conductor can resume, retry or revert\n" +
			"them.\n\n" +
			"You can shorten an id to its first 4 or more characters, or its last 8 or more, if no other id matches. With\n" +
			"-o json, results are the API's JSON documents, and errors are {\"error\": …} on stderr.\n\n" +
			"Exit codes: 0 ok, 1 failed run, 2 usage, 3 not found, 4 conflict, 5 timeout or unknown result, 6 no leader\n" +
			"(nothing changed), 7 not allowed, 8 limit, 130 interrupted.",
		SilenceErrors: true, SilenceUsage: true,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			// The library checks required flags only later, when it no longer reports their absence
			// as a usage error.
			if err := cmd.ValidateRequiredFlags(); err != nil {
				return err
			}
			if err := cmd.ValidateFlagGroups(); err != nil {
				return err
			}
			if err := p.checkGlobals(); err != nil {
				return err
			}
			p.givenProfile = p.Profile
			p.boards = boardsOf(cmd, args)
			return p.resolveIDs(cmd, args)
		},
	}
	flags := root.PersistentFlags()
	flags.StringSliceVar(&p.servers, "server", nil, "API address of a node; repeatable or comma-separated (CONDUCTORD_SERVER, or "+DefaultServer+")")
	flags.StringVar(&p.files.CA, "ca-file", "", "PEM file of the authorities that sign the nodes' certificates; enables TLS (CONDUCTORD_CA_FILE)")
	flags.StringVar(&p.files.Cert, "cert-file", "", "PEM file of the client certificate (CONDUCTORD_CERT_FILE)")
	flags.StringVar(&p.files.Key, "key-file", "", "PEM file of the private key of --cert-file (CONDUCTORD_KEY_FILE)")
	flags.StringVar(&p.tokenFile, "token-file", "", "file with the access token (CONDUCTORD_TOKEN_FILE, or the token itself in CONDUCTORD_TOKEN)")
	flags.StringVar(&p.valueKeys, "value-keys", "", "file of the keys that encrypt and decrypt values of jobs and flows (CONDUCTORD_VALUE_KEYS)")
	flags.StringVar(&p.Profile, "profile", "", "saved profile with default servers and credentials; flags and variables override it (CONDUCTORD_PROFILE)")
	flags.StringVar(&p.topology, "topology", "", "topology file, which selects the cluster by board; --server overrides it (CONDUCTORD_TOPOLOGY)")
	flags.StringVarP(&p.output, "output", "o", "table", "table or json")
	flags.DurationVar(&p.Timeout, "timeout", 0, "maximum duration of the command (default 30s; commands that wait for a job: unlimited)")
	flags.BoolVar(&p.utc, "utc", false, "show times in UTC instead of local time (JSON always uses UTC)")
	root.AddCommand(p.errorCommand(), p.versionCommand())
	root.AddCommand(p.Commands...)
	p.addStale(root)
	addExamples(root)
	root.SetFlagErrorFunc(flagFault)
	root.SetUsageTemplate(shortGlobals(root))
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd.HasSubCommands() {
			p.misnamed = noArguments(cmd, cmd.Flags().Args())
		}
		if p.misnamed == nil {
			help(cmd, args)
		}
	})
	explainArguments(root)
	p.completeNames(root)
	return root
}

// shortGlobals is the library's help template with the global flags in one line; the help of
// conductord itself explains them.
func shortGlobals(root *cobra.Command) string {
	const long = "Global Flags:\n{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}"
	var names []string
	root.PersistentFlags().VisitAll(func(flag *pflag.Flag) { names = append(names, "--"+flag.Name) })
	return strings.Replace(root.UsageTemplate(), long, "Global flags (see conductord --help): "+strings.Join(names, " "), 1)
}

// checkGlobals is the last check of the command line.
func (p *Program) checkGlobals() error {
	if p.output != "table" && p.output != "json" {
		return fmt.Errorf("--output must be table or json, not %.64q", p.output)
	}
	if p.Timeout < 0 {
		return fmt.Errorf("--timeout must not be negative: %s", p.Timeout)
	}
	p.started = true
	return nil
}

// JSON reports whether the output is JSON.
func (p *Program) JSON() bool { return p.output == "json" }

// Noun makes a command that only holds others.
func Noun(use, short string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(verbs...)
	return cmd
}

// noArguments refuses words that are no verb of a noun.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		var known []string
		for _, below := range cmd.Commands() {
			known = append(append(known, below.Name()), below.Aliases...)
		}
		return fmt.Errorf("there is no %q in %q%s", args[0], cmd.CommandPath(), meant.Hint(args[0], known))
	}
	return nil
}

// Value returns an environment variable or, if it is not set, the matching key of the profile in
// force.
func (p *Program) Value(name string) string {
	for _, item := range p.Env {
		if text, found := strings.CutPrefix(item, name+"="); found {
			return text
		}
	}
	return p.profileValues[strings.ToLower(strings.TrimPrefix(name, "CONDUCTORD_"))]
}
