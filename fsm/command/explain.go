package command

import (
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// ExplanationToProto converts an explanation; nil stays nil.
func ExplanationToProto(e *jobs.Explanation) *v1.ExplainResponse {
	if e == nil {
		return nil
	}
	return &v1.ExplainResponse{
		Job: idText(e.Job.UUID), State: string(e.State), Cause: string(e.Cause), Text: text(e.Text),
		Until: TimeToProto(e.Until), Remedy: remedyToProto(e.Remedy),
	}
}

// ExplanationFromProto converts an explanation. Nil is the zero explanation.
func ExplanationFromProto(message *v1.ExplainResponse) (jobs.Explanation, error) {
	var r reader
	e := jobs.Explanation{
		Job:   jobs.JobID{UUID: r.id("explanation job", message.GetJob())},
		State: word(&r, "explanation state", message.GetState(), knownJobState),
		Cause: word(&r, "explanation cause", message.GetCause(), func(c jobs.Cause) bool { return slices.Contains(jobs.Causes, c) }),
		Text:  message.GetText(), Until: r.time("explanation until", message.GetUntil()), Remedy: r.remedy(message.GetRemedy()),
	}
	if r.err != nil {
		return jobs.Explanation{}, r.err
	}
	return e, nil
}

func remedyToProto(remedy jobs.Remedy) *v1.Remedy {
	if remedy == (jobs.Remedy{}) {
		return nil
	}
	return &v1.Remedy{Verb: string(remedy.Verb), Target: text(remedy.Target), Value: text(remedy.Value), Name: text(remedy.Name)}
}

func (r *reader) remedy(message *v1.Remedy) jobs.Remedy {
	if message == nil {
		return jobs.Remedy{}
	}
	verb := word(r, "remedy verb", message.GetVerb(), func(v jobs.RemedyVerb) bool { return slices.Contains(jobs.RemedyVerbs, v) })
	return jobs.Remedy{Verb: verb, Target: message.GetTarget(), Value: message.GetValue(), Name: message.GetName()}
}
