package dashboard

import (
	"fmt"
	"hash/fnv"
	"html/template"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// templates are the templates of all pages, by name.
type templates struct {
	all  map[string]*template.Template
	path string // of the pages
	hash string // of the static files
}

// parseTemplates parses the embedded templates. A fault in a template is a bug of the program.
func parseTemplates(d *Dashboard) *templates {
	t := &templates{all: make(map[string]*template.Template), path: d.options.Path, hash: hashOf("static")}
	common := template.Must(template.New("").Funcs(t.funcs()).ParseFS(files, "templates/layout.html", "templates/parts.html"))
	names, _ := fs.Glob(files, "templates/*.html")
	for _, name := range names {
		if of := strings.TrimSuffix(path.Base(name), ".html"); of != "layout" && of != "parts" {
			t.all[of] = template.Must(template.Must(common.Clone()).ParseFS(files, name))
		}
	}
	return t
}

func (t *templates) of(name string) *template.Template {
	if found := t.all[name]; found != nil {
		return found
	}
	panic("internal error: no template " + name)
}

// hashOf is a hash of the files in a folder.
func hashOf(folder string) string {
	sum := fnv.New64a()
	_ = fs.WalkDir(files, folder, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			text, _ := files.ReadFile(name)
			_, _ = sum.Write(text)
		}
		return err
	})
	return fmt.Sprintf("%x", sum.Sum64())
}

// funcs are the functions of all templates.
func (t *templates) funcs() template.FuncMap {
	return template.FuncMap{
		"path":    t.address,
		"file":    func(name string) string { return t.path + "static/" + name + "?" + t.hash },
		"time":    func(stamp any) moment { return moment{timeOf(stamp), "time"} },
		"ago":     func(stamp any) moment { return moment{timeOf(stamp), "ago"} },
		"since":   func(stamp any) moment { return moment{timeOf(stamp), "since"} },
		"prose":   prose,
		"marked":  textParts,
		"took":    took,
		"state":   stateOf,
		"short":   short,
		"size":    sizeText,
		"count":   countText,
		"gib":     func(bytes uint64) string { return fmt.Sprintf("%.0f GiB", float64(bytes)/(1<<30)) },
		"waiting": waiting,
		"limits":  limitsText,
		"fold":    func(name string) string { return cut(name, maxName) },
		"names":   func(all []string) string { return cut(strings.Join(all, ", "), maxLine) },
		"length":  func(d *durationpb.Duration) string { return durationText(d.AsDuration()) },
		"failure": func(e *v1.JobError) string { return cut(failureText(e.GetReason(), e.GetFailure()), maxLine) },
		"reason":  func(j *v1.Job) string { return cut(failureText(j.GetReason(), j.GetFailure()), maxLine) },
		"remedy":  remedyText,
		"command": func(remedy string) bool { return strings.HasPrefix(remedy, "conductord ") },
		"outcome": func(job *v1.Job) badge { return stateOf(job.GetState(), job.GetOutcome()) },
		"button":  func(text, address, class string) button { return button{text, address, class} },
	}
}

// address is the address of a page: the parts of its path below the dashboard's.
func (t *templates) address(parts ...string) string { return t.path + addressBelow(parts...) }

// addressBelow makes a path of escaped parts, because a name can contain a slash. Browsers and
// net/http remove the parts "." and ".." from a path, escaped or not. These names therefore get a
// tilde in front, and so do names that start with a tilde. See visit.part.
func addressBelow(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, part := range parts {
		if strings.HasPrefix(part, "~") || part == "." || part == ".." {
			part = "~" + part
		}
		escaped[i] = url.PathEscape(part)
	}
	return strings.Join(escaped, "/")
}

// button is a form with one button.
type button struct{ Text, Address, Class string }

// moment is a time as template "moment" shows it.
type moment struct {
	At   time.Time
	Kind string // time, ago or since: how the script shows it
}

// passage is a part of a text with the time that follows it; zero: no time follows.
type passage struct {
	Text string
	At   time.Time
}

var stamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:]{8}Z`)

// prose splits a text at the times in it. A browser shows these times in its own time zone.
func prose(text string) (passages []passage) {
	for at := stamps.FindStringIndex(text); at != nil; at = stamps.FindStringIndex(text) {
		stamp, _ := time.Parse(time.RFC3339, text[at[0]:at[1]])
		passages, text = append(passages, passage{text[:at[0]], stamp}), text[at[1]:]
	}
	return append(passages, passage{Text: text})
}

// Stamp is the machine-readable time, and Text is the time without the script.
func (m moment) Stamp() string { return m.At.UTC().Format("2006-01-02T15:04:05.000Z") }

// Text is the shown time.
func (m moment) Text() string { return m.At.UTC().Format("2006-01-02 15:04:05 UTC") }

// timeOf converts any form of a time; zero: unset.
func timeOf(stamp any) time.Time {
	switch at := stamp.(type) {
	case time.Time:
		return at
	case *timestamppb.Timestamp:
		if at != nil {
			return at.AsTime()
		}
	}
	return time.Time{}
}

// took is the duration between two times; empty if one is unset.
func took(from, to any) string {
	began, ended := timeOf(from), timeOf(to)
	if began.IsZero() || ended.IsZero() {
		return ""
	}
	return durationText(ended.Sub(began))
}

// durationText is a duration in one or two units.
func durationText(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return twoUnits(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < 24*time.Hour:
		return twoUnits(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	}
	return twoUnits(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
}

func twoUnits(large int, unit string, small int, smallUnit string) string {
	if small == 0 {
		return fmt.Sprintf("%d %s", large, unit)
	}
	return fmt.Sprintf("%d %s %d %s", large, unit, small, smallUnit)
}

// waiting is the number of a board's jobs that wait for a time or an operator.
func waiting(c *v1.BoardCounts) string {
	var n uint64
	for _, state := range []jobs.State{jobs.StateDelayed, jobs.StateCooling, jobs.StateWaiting, jobs.StateHeld, jobs.StateSuspended} {
		n += c.GetJobs()[string(state)]
	}
	return countText(n)
}

// Limits of a name and of a text in a list, in bytes. The template "name" has the whole name in its
// title.
const (
	maxName = 64
	maxLine = 200
)

// cut shortens a text to most bytes.
func cut(text string, most int) string {
	switch {
	case len(text) <= most:
		return text
	case most > maxLine:
		return strings.ToValidUTF8(text[:most], "") + "\n… cut; the command line shows the rest"
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// short is the end of an id, in which ids that were created together differ.
func short(id string) string { return id[max(0, len(id)-8):] }

// countText has thin spaces between thousands.
func countText(n any) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u2009" + text[i:]
	}
	return text
}

func sizeText(bytes uint64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	case bytes >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	case bytes >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// remedyText is a command or advice that helps; empty: only waiting helps.
func remedyText(r *v1.Remedy) string {
	explanation, _ := command.ExplanationFromProto(&v1.ExplainResponse{Remedy: r})
	return cli.RemedyText(explanation.Remedy)
}

// failureText joins a reason and the failure that caused it, without repetition.
func failureText(reason string, failure *v1.Failure) string {
	var parts []string
	if reason != "" {
		parts = append(parts, reason)
	}
	for f := failure; f != nil; {
		text := f.GetMessage()
		if f.GetStep() != "" {
			text = "step " + f.GetStep() + ": " + text
		}
		if f.GetMessage() != "" && !strings.Contains(strings.Join(parts, "\n"), f.GetMessage()) {
			parts = append(parts, text)
		}
		if len(f.GetCauses()) == 0 {
			break
		}
		f = f.GetCauses()[0]
	}
	return strings.Join(parts, "\n")
}

// limitsText describes the limits of a board; empty: none.
func limitsText(l *v1.BoardLimits) string {
	var parts []string
	if n := l.GetJobs(); n > 0 {
		parts = append(parts, countText(n)+" unfinished jobs")
	}
	if n := l.GetBytes(); n > 0 {
		parts = append(parts, sizeText(n))
	}
	if n := l.GetPostingsPerSecond(); n > 0 {
		parts = append(parts, countText(n)+" postings a second")
	}
	return strings.Join(parts, ", ")
}
