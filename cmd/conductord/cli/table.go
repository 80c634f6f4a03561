package cli

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

const (
	columnGap = 2
	leastCell = 8  // how far cells are shortened, but for ids and states
	leastLast = 24 // the same of the last column, which is often a reason
)

// stateColours make what needs a look stand out. They are those of marks.
var stateColours = map[string]string{
	"claimed": "\x1b[36m", "running": "\x1b[36m", "completed": "\x1b[32m", "success": "\x1b[32m",
	"reverting": "\x1b[33m", "reverted": "\x1b[33m", "cancelled": "\x1b[33m", "suspended": "\x1b[33m", "paused": "\x1b[33m",
	"failure": "\x1b[31m", "failed": "\x1b[31m", "trashed": "\x1b[31m", "revert_failure": "\x1b[31m",
}

// WriteTable writes rows below a header, in columns that are as wide as they need to be.
// Without rows there is the header alone. On a terminal the table fits into its lines, and
// states have colours; elsewhere programs read it, and every cell is whole.
func (p *Program) WriteTable(header []string, rows [][]string) error {
	cells := make([][]string, 0, len(rows)+1)
	cells = append(cells, header)
	cells = append(cells, rows...)
	for i := range cells {
		cells[i] = slices.Clone(cells[i])
		for j, cell := range cells[i] {
			if cells[i][j] = Clean(cell); i == 0 {
				cells[i][j] = strings.ToUpper(cell)
			}
		}
	}
	width, colour := 0, false
	if p.Columns != nil {
		width, colour = p.Columns(), p.Value("NO_COLOR") == ""
	}
	columns, widths := fit(cells, width)
	var text strings.Builder
	for i, row := range cells {
		pad := 0
		for _, c := range columns {
			if row[c] == "" {
				pad += widths[c] + columnGap
				continue
			}
			cell := shortenTo(row[c], widths[c])
			text.WriteString(strings.Repeat(" ", pad))
			pad = widths[c] - utf8.RuneCountInString(cell) + columnGap
			if look := stateColours[strings.ToLower(row[c])]; colour && look != "" && i > 0 && holdsStates(cells[0][c]) {
				cell = look + cell + colourOff
			}
			text.WriteString(cell)
		}
		text.WriteString("\n")
	}
	_, err := p.Out.Write([]byte(text.String()))
	return err
}

func holdsStates(header string) bool { return header == "STATE" || header == "OUTCOME" }

// fit says which columns of a table are shown, and how wide; 0: lines of any width. Where
// they do not fit, it leaves out columns that say nothing, then cuts ids to a beginning
// that stands for them, then shortens the longest cells. Where that is not enough, it leaves
// out columns from the right, where the less important ones stand, but not the last.
func fit(cells [][]string, width int) (columns, widths []int) {
	widths = make([]int, len(cells[0]))
	for _, row := range cells {
		for c, cell := range row {
			widths[c] = max(widths[c], utf8.RuneCountInString(cell))
		}
	}
	for c := range widths {
		columns = append(columns, c)
	}
	over := func(wide func(c int) int) int {
		sum := -columnGap
		for _, c := range columns {
			sum += wide(c) + columnGap
		}
		return sum - width
	}
	whole := func(c int) int { return widths[c] }
	if width <= 0 || over(whole) <= 0 {
		return columns, widths
	}
	empty := func(c int) bool {
		return !slices.ContainsFunc(cells[1:], func(row []string) bool { return row[c] != "-" })
	}
	columns = slices.DeleteFunc(columns, func(c int) bool { return len(cells) > 1 && empty(c) })
	fixed := make([]bool, len(widths))
	for _, c := range columns {
		fixed[c] = holdsStates(cells[0][c]) || over(whole) > 0 && cutIDs(cells[1:], c, widths)
	}
	least := func(c int) int {
		if fixed[c] {
			return widths[c]
		}
		least := leastCell
		if c == len(widths)-1 {
			least = leastLast
		}
		return max(min(widths[c], least), utf8.RuneCountInString(cells[0][c]))
	}
	for len(columns) > 1 && over(least) > 0 {
		before := max(len(columns)-2, 1)
		columns = slices.Delete(columns, before, before+1)
	}
	spare := func(a, b int) int { return widths[a] - least(a) - (widths[b] - least(b)) }
	for over(whole) > 0 {
		longest := slices.MaxFunc(columns, spare)
		if widths[longest] == least(longest) {
			break // the terminal is too narrow
		}
		widths[longest]--
	}
	return columns, widths
}

// cutIDs cuts a column of ids to the beginnings that tell them apart, and reports whether
// it is one. Ids that were made in one millisecond have 13 characters in common.
func cutIDs(rows [][]string, c int, widths []int) bool {
	ids := map[string]bool{}
	if len(rows) == 0 {
		return false
	}
	for _, row := range rows {
		if row[c] != "-" && uuid.Validate(row[c]) != nil {
			return false
		}
		ids[row[c]] = true
	}
	for _, size := range []int{len("00000000-0000"), len("00000000-0000-0000")} {
		short := map[string]bool{}
		for id := range ids {
			short[id[:min(size, len(id))]] = true
		}
		if len(short) == len(ids) {
			widths[c] = size
			break
		}
	}
	for _, row := range rows {
		row[c] = row[c][:min(widths[c], len(row[c]))]
	}
	return true
}
