package conductor

import (
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs/steplog"
)

// textEncrypter is a logbook that encrypts values. The output of steps can contain values.
type textEncrypter interface{ EncryptText(text string) string }

// output returns a function that stores the output of the job's steps; nil: it is not stored.
func (r *run) output() func(call *flow.Call, line string) {
	logs := r.loop.options.Logs
	if logs == nil {
		return nil
	}
	encrypter, encrypts := r.loop.options.Client.(textEncrypter)
	return func(call *flow.Call, line string) {
		kept := steplog.Line{Step: call.Step, Action: call.Action, Attempt: call.Attempt, Time: r.now(), Text: line}
		if encrypts {
			kept.Text = encrypter.EncryptText(line)
		}
		logs.Append(r.claimed.Job.ID, kept, len(line))
	}
}
