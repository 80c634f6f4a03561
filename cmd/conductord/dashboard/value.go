package dashboard

import (
	"bytes"
	"encoding/json"
)

// maxValueText bounds the text of a value on a page, in bytes.
const maxValueText = 32 << 10

// jsonText is a JSON value for people, in lines, cut where it is too long for a page.
func jsonText(value json.RawMessage) string {
	var lines bytes.Buffer
	if err := json.Indent(&lines, value, "", "  "); err != nil {
		lines.Reset()
		_, _ = lines.Write(value)
	}
	if lines.Len() > maxValueText {
		return string(bytes.ToValidUTF8(lines.Bytes()[:maxValueText], nil)) + "\n… cut; the command line shows the rest"
	}
	return lines.String()
}
