package demo

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// summary is the summary of a demo.
type summary struct {
	Posted       int        `json:"posted"`
	Succeeded    int        `json:"succeeded"`
	Reverted     int        `json:"reverted"`
	Resumed      int        `json:"resumed_on_another_node"`
	Steps        int        `json:"steps_executed"`
	Again        int        `json:"steps_executed_more_than_once"`
	Compared     int        `json:"recorded_results_compared"`
	Changed      int        `json:"recorded_results_changed"`
	Lost         int        `json:"lost"`
	Unexpected   int        `json:"ended_otherwise_than_expected"`
	HandOvers    []handOver `json:"hand_overs"`
	Explanations []string   `json:"explanations,omitempty"`
}

// handOver is the time for which the jobs of a killed node had no owner.
type handOver struct {
	Node      string  `json:"node"`
	Jobs      int     `json:"jobs"`
	Claimable seconds `json:"claimable_again_after_s"` // for the last of these jobs
	Claimed   seconds `json:"claimed_again_after_s"`   // for the last of these jobs
}

// seconds is a duration in a summary.
type seconds float64

func (s seconds) String() string { return fmt.Sprintf("%.1f s", float64(s)) }

// good reports whether everything that was promised held.
func (r *summary) good() bool { return r.Lost == 0 && r.Changed == 0 && r.Unexpected == 0 }

// check reads and counts every job and flow.
func (d *demo) check(ctx context.Context) (*summary, error) {
	report := &summary{Posted: len(d.posted)}
	for _, posted := range d.posted {
		job, err := d.client.Job(ctx, posted.id)
		if err != nil {
			report.Lost++
			report.explain("job %s is lost: %v", posted.id, err)
			continue
		}
		report.countJob(posted, &job)
		detail, err := d.client.FlowDetail(ctx, posted.flow)
		if err != nil {
			report.Lost++
			report.explain("the flow of job %s is lost: %v", posted.id, err)
			continue
		}
		report.countSteps(&detail, d.story.recorded)
	}
	for key := range d.story.recorded {
		report.Lost++ // countSteps removes the steps that are still recorded
		report.explain("the result of step %s of flow %s is lost", key.step, key.flow)
	}
	for _, job := range d.story.jobs {
		if resumed(job.owners) {
			report.Resumed++
		}
	}
	for _, kill := range d.story.kills {
		report.HandOvers = append(report.HandOvers, handOver{
			Node: kill.node, Jobs: len(kill.claimed), Claimable: longest(kill.claimable), Claimed: longest(kill.claimed),
		})
	}
	return report, nil
}

func (r *summary) explain(format string, args ...any) {
	r.Explanations = append(r.Explanations, fmt.Sprintf(format, args...))
}

func (r *summary) countJob(posted postedJob, job *jobs.Job) {
	switch {
	case !job.State.Finished():
		r.Lost++
		r.explain("job %s is not finished: it is %s", job.ID, job.State)
	case job.Outcome != posted.want:
		r.Unexpected++
		r.explain("job %s is %s %s and not %s: %s", job.ID, job.State, job.Outcome, posted.want, job.Reason)
	case job.Outcome == jobs.OutcomeSuccess:
		r.Succeeded++
	case job.Outcome == jobs.OutcomeReverted:
		r.Reverted++
	}
}

// countSteps counts executions, and compares earlier recorded results with the final ones. No
// step may have two results.
func (r *summary) countSteps(detail *logbook.FlowDetail, recorded map[recordKey]logbook.Attempt) {
	for i := range detail.Atoms {
		atom := &detail.Atoms[i]
		executions, results := 0, 0
		for j := range atom.Attempts {
			attempt := &atom.Attempts[j]
			if attempt.Action != logbook.ActionExecute {
				continue
			}
			executions++
			if attempt.Ended() && attempt.Failure == nil {
				results++
			}
		}
		r.Steps += executions
		if executions > 1 {
			r.Again++
		}
		if results > 1 {
			r.Changed++
			r.explain("step %s of flow %s has %d results", atom.Name, detail.ID, results)
		}
	}
	eachRecord(detail, func(key recordKey, now logbook.Attempt) {
		then, known := recorded[key]
		if !known {
			return
		}
		delete(recorded, key)
		r.Compared++
		if !bytes.Equal(then.Result, now.Result) || !then.EndedAt.Equal(now.EndedAt) || then.Token != now.Token {
			r.Changed++
			r.explain("the result of step %s of flow %s has changed", key.step, key.flow)
		}
	})
}

// resumed reports whether more than one owner claimed the job, one after the other.
func resumed(owners []string) bool { return len(slices.Compact(slices.Clone(owners))) > 1 }

func longest(times []time.Duration) seconds {
	if len(times) == 0 {
		return 0
	}
	return seconds(slices.Max(times).Seconds())
}

func showReport(p *cli.Program, r *summary) error {
	if p.JSON() {
		return p.WriteJSON(r)
	}
	lines := []string{
		fmt.Sprintf("posted                         %5d", r.Posted),
		fmt.Sprintf("succeeded                      %5d", r.Succeeded),
		fmt.Sprintf("reverted                       %5d", r.Reverted),
		fmt.Sprintf("resumed on another node        %5d", r.Resumed),
		fmt.Sprintf("steps executed                 %5d", r.Steps),
		fmt.Sprintf("steps executed more than once  %5d", r.Again),
		fmt.Sprintf("recorded results compared      %5d", r.Compared),
		fmt.Sprintf("recorded results changed       %5d", r.Changed),
		fmt.Sprintf("lost                           %5d", r.Lost),
	}
	for _, h := range r.HandOvers {
		lines = append(lines, fmt.Sprintf("hand-over from %s: %d jobs, all claimable again after %s, all claimed after %s", h.Node, h.Jobs, h.Claimable, h.Claimed))
	}
	return p.WriteLines(append(lines, r.Explanations...))
}
