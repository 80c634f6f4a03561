package cli

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

const (
	columnGap = 2
	leastCell = 8  // minimum width to which cells are shortened, except ids and states
	leastLast = 24 // the same for the last column, which is often a reason
	// cutID is the length of a shortened id: its creation time and the following counter.
	cutID = len("00000000-0000-0000")
	// ColourOff ends a colour on a terminal.
	ColourOff = "\x1b[0m"
)

// stateColours highlight states that need attention. Marks use the same colours.
var stateColours = map[string]string{
	"claimed": "\x1b[36m", "running": "\x1b[36m", "completed": "\x1b[32m", "success": "\x1b[32m",
	"reverting": "\x1b[33m", "reverted": "\x1b[33m", "cancelled": "\x1b[33m", "suspended": "\x1b[33m", "paused": "\x1b[33m",
	"failure": "\x1b[31m", "failed": "\x1b[31m", "trashed": "\x1b[31m", "revert_failure": "\x1b[31m",
}

// WriteTable writes rows below a header, in columns of the necessary width. Without rows, it
// writes only the header. On a terminal, rows fit the width and states have colours. Elsewhere
// every cell is complete, because programs read the table.
func (p *Program) WriteTable(header []string, rows [][]string) error {
	var cells [][]string
	for i, row := range append([][]string{header}, rows...) {
		cells = append(cells, make([]string, len(row)))
		for c, cell := range row {
			if cells[i][c] = Clean(cell); i == 0 {
				cells[i][c] = strings.ToUpper(cell)
			}
		}
	}
	width, colour := 0, false
	if p.Columns != nil {
		width, colour = p.Columns(), p.Value("NO_COLOR") == ""
	}
	columns, widths := fit(cells, width)
	var text strings.Builder
	for _, row := range cells {
		line := ""
		for _, c := range columns {
			cell := ShortenTo(row[c], widths[c])
			pad := strings.Repeat(" ", widths[c]-utf8.RuneCountInString(cell)+columnGap)
			if look := stateColours[row[c]]; colour && look != "" && holdsStates(cells[0][c]) {
				cell = look + cell + ColourOff
			}
			line += cell + pad
		}
		text.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := p.Out.Write([]byte(text.String()))
	return err
}

func holdsStates(header string) bool { return header == "STATE" || header == "OUTCOME" }

// fit chooses the columns of a table and their widths for a line width; 0: unlimited. If the
// columns do not fit, it leaves out columns without information, cuts ids, and shortens the
// longest cells. If that is not enough, it drops columns from the right, where the less
// important ones are, but keeps the last.
func fit(cells [][]string, width int) (columns, widths []int) {
	widths = make([]int, len(cells[0]))
	for c := range widths {
		columns = append(columns, c)
		for _, row := range cells {
			widths[c] = max(widths[c], utf8.RuneCountInString(row[c]))
		}
	}
	over := func(wide func(c int) int) bool {
		sum := -columnGap
		for _, c := range columns {
			sum += wide(c) + columnGap
		}
		return width > 0 && sum > width
	}
	whole := func(c int) int { return widths[c] }
	if len(cells) == 1 || !over(whole) {
		return columns, widths
	}
	all := func(c int, is func(cell string) bool) bool {
		return !slices.ContainsFunc(cells[1:], func(row []string) bool { return !is(row[c]) })
	}
	columns = slices.DeleteFunc(columns, func(c int) bool { return all(c, func(cell string) bool { return cell == "-" }) })
	fixed := make([]bool, len(widths))
	for _, c := range columns {
		fixed[c] = holdsStates(cells[0][c])
		if over(whole) && all(c, func(cell string) bool { return cell == "-" || uuid.Validate(cell) == nil }) {
			fixed[c], widths[c] = true, cutID
			for _, row := range cells[1:] {
				row[c] = row[c][:min(cutID, len(row[c]))]
			}
		}
	}
	spare := func(c int) int {
		least := leastCell
		switch {
		case fixed[c]:
			least = widths[c]
		case c == len(widths)-1:
			least = leastLast
		}
		return max(0, widths[c]-max(least, utf8.RuneCountInString(cells[0][c])))
	}
	for len(columns) > 1 && over(func(c int) int { return widths[c] - spare(c) }) {
		before := max(len(columns)-2, 1)
		columns = slices.Delete(columns, before, before+1)
	}
	for over(whole) {
		longest := slices.MaxFunc(columns, func(a, b int) int { return spare(a) - spare(b) })
		if spare(longest) == 0 {
			break // the terminal is too narrow for any column
		}
		widths[longest]--
	}
	return columns, widths
}
