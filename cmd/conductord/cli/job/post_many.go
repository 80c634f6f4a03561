package job

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/document"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
)

// maxLineBytes limits the length of a posting's line. A longer line is larger than any command,
// even without the spaces in its JSON.
const maxLineBytes = 4 << 20

// maxFilePostings bounds the postings of one file, because all are in memory at once: 100,000
// postings of 1 KiB take 100 MiB.
const maxFilePostings = 100_000

// maxLooks bounds the kinds of work in one file that are checked for missing handlers, because
// each check may take announceTime.
const maxLooks = 10

// postLines posts a job for each line of a file, 1,000 lines at a time, and prints the result of
// each. It reads all lines before it posts the first one, so a file with a mistake posts nothing.
// It returns the error of the first refusal. Warnings of missing handlers come last.
func postLines(ctx context.Context, p *cli.Program, cluster poster, postings []linePosting) error {
	ctx, err := traced(ctx)
	if err != nil {
		return err
	}
	var verdicts []verdict
	var refused error
	count, looks := 0, map[string]bool{}
	for rest := postings; len(rest) > 0; {
		now := rest[:min(len(rest), command.MaxPostings)]
		rest = rest[len(now):]
		batch := make([]jobs.Posting, len(now))
		for i := range now {
			batch[i] = now[i].posting
		}
		posted, err := cluster.Post(ctx, batch...)
		if err != nil {
			return errors.Join(writeVerdicts(p, verdicts), cli.Because(err, "post lines %d to %d (all earlier lines are posted)", now[0].line, now[len(now)-1].line))
		}
		for i, answer := range posted {
			job := command.JobToProto(&answer.Job)
			work := fmt.Sprint(answer.Job.Board, answer.Job.Labels, now[i].handlers)
			if answer.Err == nil && len(looks) < maxLooks && !looks[work] {
				looks[work] = true
				defer document.WarnOfHandlers(ctx, p, cluster, &answer.Job, now[i].handlers)
			}
			if answer.Err != nil {
				job = &v1.Job{Id: batch[i].ID.String()}
				if count++; refused == nil {
					refused = cli.Because(elsewhere(answer.Err), "post line %d", now[i].line)
				}
			}
			verdicts = append(verdicts, verdict{now[i].line, &v1.PostedJob{
				Job: job, Existed: answer.Existed, Error: command.ErrorToProto(answer.Err), Signal: command.SignalReceiptToProto(answer.Signal),
			}})
		}
	}
	if count > 1 {
		p.Note("%d of %d lines were refused", count, len(postings))
	}
	return errors.Join(writeVerdicts(p, verdicts), refused)
}

// writeVerdicts prints the id of each job, like the posting of a single job.
func writeVerdicts(p *cli.Program, verdicts []verdict) error {
	if p.JSON() {
		answer := &v1.PostResponse{}
		for _, found := range verdicts {
			answer.Posted = append(answer.Posted, found.PostedJob)
		}
		return p.WriteJSON(answer)
	}
	lines := make([]string, 0, len(verdicts))
	for _, found := range verdicts {
		switch {
		case found.Error != nil:
			lines = append(lines, fmt.Sprintf("line %d: %s", found.line, found.Error.GetMessage()))
		case found.Existed:
			lines = append(lines, found.Job.GetId()+" existed")
		default:
			lines = append(lines, found.Job.GetId())
		}
	}
	return p.WriteLines(lines)
}

// linePosting is a posting, its place in the file, and the handlers in its flow document.
type linePosting struct {
	line     int
	posting  jobs.Posting
	handlers []string
}

// readPostings reads a file, or stdin for "-", with one posting per line in the form of the
// API. defaults are fields for lines that lack them.
func readPostings(p *cli.Program, path string, defaults map[string]json.RawMessage) ([]linePosting, error) {
	source, err := p.OpenInput(path)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	var postings []linePosting
	lines, number := bufio.NewScanner(source), 0
	lines.Buffer(nil, maxLineBytes)
	for lines.Scan() {
		number++
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		posting, handlers, err := parsePosting(p, text, defaults, fmt.Sprintf("line %d", number))
		if err == nil && len(postings) == maxFilePostings {
			err = &logbook.LimitError{Field: "file", Limit: maxFilePostings, Size: maxFilePostings + 1, Unit: "postings or more"}
		}
		if err != nil {
			return nil, cli.UsageError(fmt.Errorf("%s, line %d: %w", path, number, err))
		}
		postings = append(postings, linePosting{number, posting, handlers})
	}
	if err := lines.Err(); err != nil {
		return nil, cli.UsageError(fmt.Errorf("cannot read %s, line %d (the limit is %d bytes): %w", path, number+1, maxLineBytes, err))
	}
	if len(postings) == 0 {
		return nil, cli.UsageError(fmt.Errorf("%s contains no postings", path))
	}
	return postings, nil
}

// parsePosting reads a line: a posting in the form of the API. Its flow can also be a document that
// names handlers.
func parsePosting(p *cli.Program, text []byte, defaults map[string]json.RawMessage, flowName string) (posting jobs.Posting, handlers []string, err error) {
	var inline json.RawMessage
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(text, &fields) == nil && (len(defaults) > 0 || bytes.HasPrefix(fields["flow"], []byte("{"))) {
		if bytes.HasPrefix(fields["flow"], []byte("{")) {
			inline = fields["flow"]
			delete(fields, "flow")
		}
		for name, value := range defaults {
			_, said := fields[name]
			if name == "kind" && (inline != nil || fields["book"] != nil || fields["book_id"] != nil) {
				said = true // the line names another flow
			}
			if !said {
				fields[name] = value
			}
		}
		if text, err = json.Marshal(fields); err != nil {
			return posting, nil, err
		}
	}
	message := &v1.Posting{}
	if err := (wire.JSONCodec{}).Unmarshal(text, message); err != nil {
		return posting, nil, err
	}
	if posting, err = command.PostingFromProto(message); err != nil {
		return posting, nil, err
	}
	if posting.ID.IsZero() {
		posting.ID = jobs.NewJobID()
	}
	if inline == nil {
		posting.Name = cmp.Or(posting.Name, posting.Kind) // same name as by job post
		return posting, nil, nil
	}
	if posting.Kind != "" || posting.Book != nil || !posting.BookID.IsZero() {
		return posting, nil, &logbook.InvalidError{Field: "flow", Reason: "a line with a flow document cannot have kind, book or book_id"}
	}
	compiled, _, err := document.CompileDocument(p, inline, flowName)
	if err != nil {
		return posting, nil, err
	}
	return posting, compiled.Handlers(), document.Attach(compiled, &posting, nil)
}
