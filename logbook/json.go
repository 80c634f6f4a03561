package logbook

import "encoding/binary"

// validJSON is json.Valid in a sixth to two thirds of the time: every value that is posted
// comes by here, at the client and at the leader, and most of it is inside of
// strings, which are gone through eight bytes at a time. The value must not be
// nested deeper than MaxJSONDepth.
func validJSON(data []byte) bool {
	at := afterValue(data, afterSpace(data, 0))
	return at >= 0 && afterSpace(data, at) == len(data)
}

// The functions below give the index behind what begins at another one, and -1
// where that is something else. An index behind the end begins nothing.

func afterSpace(data []byte, at int) int {
	for at >= 0 && at < len(data) && (data[at] == ' ' || data[at] == '\n' || data[at] == '\t' || data[at] == '\r') {
		at++
	}
	return at
}

func afterValue(data []byte, at int) int {
	if at < 0 || at >= len(data) {
		return -1
	}
	switch data[at] {
	case '"':
		return afterString(data, at)
	case '{':
		return afterMembers(data, at, '}', afterMember)
	case '[':
		return afterMembers(data, at, ']', afterValue)
	case 't':
		return afterWord(data, at, "true")
	case 'f':
		return afterWord(data, at, "false")
	case 'n':
		return afterWord(data, at, "null")
	}
	return afterNumber(data, at)
}

func afterWord(data []byte, at int, word string) int {
	if len(data)-at < len(word) || string(data[at:at+len(word)]) != word {
		return -1
	}
	return at + len(word)
}

// afterMembers goes through an object or an array.
func afterMembers(data []byte, at int, closing byte, member func([]byte, int) int) int {
	at = afterSpace(data, at+1)
	if at < len(data) && data[at] == closing {
		return at + 1
	}
	for {
		at = afterSpace(data, member(data, at))
		switch {
		case at < 0 || at >= len(data):
			return -1
		case data[at] == closing:
			return at + 1
		case data[at] != ',':
			return -1
		}
		at = afterSpace(data, at+1)
	}
}

// afterMember goes through a name and its value.
func afterMember(data []byte, at int) int {
	if at >= len(data) || data[at] != '"' {
		return -1
	}
	at = afterSpace(data, afterString(data, at))
	if at < 0 || at >= len(data) || data[at] != ':' {
		return -1
	}
	return afterValue(data, afterSpace(data, at+1))
}

// Eight bytes at once: each byte one, and the highest bit of each.
const (
	eachOne  = 0x0101010101010101
	eachHigh = 0x8080808080808080
)

// hasSpecial tells whether one of eight bytes is a quote, a backslash or a
// control character. See "Determine if a word has a zero byte" and "a byte less
// than n" in Sean Anderson's Bit Twiddling Hacks.
func hasSpecial(eight uint64) bool {
	quote, backslash := eight^(eachOne*'"'), eight^(eachOne*'\\')
	return ((eight-eachOne*' ')&^eight|(quote-eachOne)&^quote|(backslash-eachOne)&^backslash)&eachHigh != 0
}

func afterString(data []byte, at int) int {
	for at++; ; at++ {
		for len(data)-at >= 8 && !hasSpecial(binary.LittleEndian.Uint64(data[at:])) {
			at += 8
		}
		switch {
		case at >= len(data) || data[at] < ' ':
			return -1
		case data[at] == '"':
			return at + 1
		case data[at] == '\\':
			if at = afterEscape(data, at+1); at < 0 {
				return -1
			}
			at-- // the loop goes on behind it
		}
	}
}

// afterEscape goes through what follows a backslash.
func afterEscape(data []byte, at int) int {
	if at >= len(data) {
		return -1
	}
	switch data[at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return at + 1
	case 'u':
		for i := at + 1; i <= at+4; i++ {
			if i >= len(data) || !isHex(data[i]) {
				return -1
			}
		}
		return at + 5
	}
	return -1
}

func isHex(c byte) bool {
	return isDigit(c) || ('a' <= c && c <= 'f') || ('A' <= c && c <= 'F')
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func afterNumber(data []byte, at int) int {
	if data[at] == '-' {
		at++
	}
	if at < len(data) && data[at] == '0' {
		at++
	} else if at = afterDigits(data, at); at < 0 {
		return -1
	}
	if at < len(data) && data[at] == '.' {
		if at = afterDigits(data, at+1); at < 0 {
			return -1
		}
	}
	if at < len(data) && (data[at] == 'e' || data[at] == 'E') {
		at++
		if at < len(data) && (data[at] == '+' || data[at] == '-') {
			at++
		}
		return afterDigits(data, at)
	}
	return at
}

// afterDigits goes through one digit or more.
func afterDigits(data []byte, at int) int {
	first := at
	for at < len(data) && isDigit(data[at]) {
		at++
	}
	if at == first {
		return -1
	}
	return at
}
