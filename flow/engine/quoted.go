package engine

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// escapes are the characters after a backslash that mean another one.
var escapes = map[rune]rune{'a': '\a', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v'}

// digits are how many hexadecimal digits follow a backslash and a letter.
var digits = map[rune]int{'x': 2, 'u': 4, 'U': 8}

// unquote unquotes a text depth times, from a position, and writes size flat bytes of the
// result to to. It returns the position of the next byte, or 0 if the text has fewer bytes, and
// whether anything was quoted. It reads the escapes of Go, JSON and Python, and is total: it
// drops a backslash before any other character.
func unquote(to []byte, text string, at, size, depth int) (end int, quoted bool) {
	if at+size > len(text) {
		return 0, false
	}
	if depth == 0 || strings.IndexByte(text[at:at+size], '\\') < 0 {
		copy(to, text[at:at+size])
		return at + size, depth == 0 && strings.IndexByte(text[at:at+size], '\\') >= 0
	}
	for n := 0; n < size; {
		if at >= len(text) {
			return 0, quoted
		}
		value, wide, behind := character(text, at, depth)
		if wide && utf16.IsSurrogate(value) && behind < len(text) { // JSON has a character beyond the first 65,536 as a pair
			low, _, end := character(text, behind, depth)
			if pair := utf16.DecodeRune(value, low); pair != utf8.RuneError {
				value, behind = pair, end
			}
		}
		quoted, at = quoted || behind-at > 1, behind
		if wide {
			var encoded [utf8.UTFMax]byte
			n += copy(to[n:], encoded[:utf8.EncodeRune(encoded[:], value)])
		} else {
			to[n] = byte(value)
			n++
		}
	}
	flatten(to[:size])
	return at, quoted
}

// character reads one character of a text that is unquoted depth times, and returns the position
// after it. The character is a byte, or a wide character that an escape gives by number.
func character(text string, at, depth int) (value rune, wide bool, end int) {
	if depth == 0 {
		return rune(text[at]), false, at + 1
	}
	if value, wide, end = character(text, at, depth-1); wide || value != '\\' || end == len(text) {
		return value, wide, end
	}
	letter, wide, begin := character(text, end, depth-1)
	value, end = 0, begin
	for n := digits[letter]; n > 0 && end < len(text); n-- {
		c, _, behind := character(text, end, depth-1)
		digit := strings.IndexRune("0123456789abcdef", c|0x20)
		if c < '0' || digit < 0 {
			break
		}
		value, end = value<<4|rune(digit), behind
	}
	if end > begin {
		return value, letter != 'x', end
	}
	if meant, ok := escapes[letter]; ok {
		letter = meant
	}
	return letter, wide, begin
}
