package dashboard

import (
	"bytes"
	"encoding/json"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
)

// Limits of the values on a page. Escaped for HTML, a text can take five times its bytes.
const (
	maxValueText = 32 << 10 // bytes of the text of one value
	maxValueSum  = 40 << 10 // bytes of the texts of all values
	maxValues    = 500
)

// namedText is a value as text.
type namedText struct{ Name, Text string }

// valuesOf returns the details and the store of a job, within the bounds and the available bytes, and the
// number of values that it leaves out.
func valuesOf(job *v1.Job, room int) (shown []namedText, more int) {
	values := job.GetStore()
	if job.GetDetails() != nil {
		values = append([]*v1.NamedValue{{Name: "Details", Value: job.GetDetails()}}, values...)
	}
	for i, value := range values {
		if room == 0 || i == maxValues {
			return shown, len(values) - i
		}
		text := cut(jsonText(command.ValueFromProto(value.GetValue())), room)
		room = max(0, room-len(text)-len(value.GetName()))
		shown = append(shown, namedText{value.GetName(), text})
	}
	return shown, 0
}

// jsonText formats a JSON value in lines, and cuts a value that is too long for a page.
func jsonText(value json.RawMessage) string {
	var lines bytes.Buffer
	if err := json.Indent(&lines, value, "", "  "); err != nil {
		lines.Reset()
		_, _ = lines.Write(value)
	}
	return cut(lines.String(), maxValueText)
}
