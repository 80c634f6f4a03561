package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs/steplog"
	"github.com/conductord/conductord/logbook"
)

// LogLineToProto converts a line of a step's output, without its number.
func LogLineToProto(line *steplog.Line) *v1.LogLine {
	return &v1.LogLine{
		Step: text(line.Step), Action: string(line.Action), Attempt: uint32(line.Attempt),
		Time: TimeToProto(line.Time), Text: text(line.Text), Offset: line.Offset,
	}
}

// LogLineFromProto converts a line of a step's output. Nil is the zero line.
func LogLineFromProto(message *v1.LogLine) (steplog.Line, error) {
	var r reader
	line := steplog.Line{
		Step: message.GetStep(), Action: logbook.Action(message.GetAction()), Attempt: r.count("line attempt", message.GetAttempt()),
		Time: r.time("line time", message.GetTime()), Text: message.GetText(), Offset: message.GetOffset(),
	}
	return line, r.err
}
