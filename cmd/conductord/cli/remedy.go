package cli

import "github.com/conductord/conductord/jobs"

// RemedyText is a remedy for people: a command line where there is one.
func RemedyText(remedy jobs.Remedy) string {
	command := "conductord "
	switch remedy.Verb {
	case jobs.RemedyRetry:
		command += "job retry "
	case jobs.RemedyCancel:
		command += "job cancel "
	case jobs.RemedyResume:
		command += "job resume "
	case jobs.RemedyRelease:
		command += "job release "
	case jobs.RemedyMakeDue:
		return command + "job change " + quoted(remedy.Target) + " --not-before 0s"
	case jobs.RemedyReprioritise:
		return command + "job change " + quoted(remedy.Target) + " --priority " + quoted(remedy.Value)
	case jobs.RemedyShowFlow:
		command += "flow show "
	case jobs.RemedyRerunFlow:
		command += "flow rerun "
	case jobs.RemedyResumeBoard:
		command += "board resume "
	case jobs.RemedyUndrain:
		command += "conductor undrain "
	case jobs.RemedyStart:
		return "start one; those that live: conductord conductor list"
	case jobs.RemedyOfferLabels:
		return "start a conductor that offers them (conductor.labels); those that live: conductord conductor list"
	case jobs.RemedyAddCapacity:
		return "start another conductor, or let these take more jobs (conductor.max_jobs)"
	case jobs.RemedyStartWorker:
		command += "worker --handlers DIRECTORY --types " + quoted(remedy.Target)
		if remedy.Value != "" {
			command += " --labels " + quoted(remedy.Value)
		}
		if remedy.Name != "" {
			command += " --name " + quoted(remedy.Name)
		}
		return command
	default: // none, or one of a newer server
		return string(remedy.Verb)
	}
	return command + quoted(remedy.Target)
}

// Quoted is a text as one word of a shell.
func Quoted(text string) string { return quoted(text) }
