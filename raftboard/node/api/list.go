package api

// ToProto converts the items of a list.
func ToProto[T, Message any](items []T, convert func(*T) *Message) []*Message {
	var messages []*Message
	for i := range items {
		messages = append(messages, convert(&items[i]))
	}
	return messages
}

// Limits of the rows that one call reads without finding a row that the caller may see. At the
// limit, the answer is empty, and contains the position for the next call. If this position would
// name an item, the limit is the maximum number of boards or sessions.
const (
	maxHiddenPages = 20
	maxHiddenRows  = 10_000
)

// shown reads pages of a list until one has a visible item for the caller, and omits the rest. If
// the next of a page names its last item, cursor derives it from the shown items.
func shown[T any](after string, read func(after string) ([]T, string, error), shows func(*T) bool, cursor func([]T) string) ([]T, string, error) {
	rows := 0
	for pages := 1; ; pages++ {
		page, next, err := read(after)
		if err != nil {
			return nil, "", err
		}
		kept := page[:0]
		rows += len(page)
		for i := range page { // in place, because shows can remove parts of an item
			if shows(&page[i]) {
				kept = append(kept, page[i])
			}
		}
		switch {
		case len(kept) > 0 && next != "" && cursor != nil:
			return kept, cursor(kept), nil
		case len(kept) > 0 || next == "" || pages == maxHiddenPages && cursor == nil, rows >= maxHiddenRows, len(page) == 0:
			return kept, next, nil
		}
		after = next
	}
}
