package engine

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// escapes are the characters after a backslash that mean another one.
var escapes = map[byte]byte{'a': '\a', 'b': '\b', 'e': 0x1b, 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v'}

// unquote writes size bytes of a text to to, flat, from a place on, after the text was unquoted so
// many times. It returns where the next byte would be, 0 if there are fewer, and whether
// anything was quoted. It reads the escapes of Go, JSON, Python and C, and is total: a
// backslash before anything else is left out.
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
		c, width, behind := character(text, at, depth)
		quoted = quoted || behind-at > 1
		n += copy(to[n:], c[:width])
		at = behind
	}
	flatten(to[:size])
	return at, quoted
}

// character reads one character of a text that is unquoted so many times, or one byte of one
// that is not quoted. It returns its bytes, and the place behind it.
func character(text string, at, depth int) (c [utf8.UTFMax]byte, width, end int) {
	if depth == 0 {
		c[0] = text[at]
		return c, 1, at + 1
	}
	if c, width, end = character(text, at, depth-1); c[0] != '\\' || end == len(text) {
		return c, width, end
	}
	if c, width, at = character(text, end, depth-1); width > 1 {
		return c, width, at
	}
	digits, base := 0, rune(16)
	b := c[0]
	switch b {
	case 'x':
		digits = 2
	case 'u':
		if digits = 4; strings.HasPrefix(text[at:], "{") { // as Rust has them
			digits, at = 8, at+1
		}
	case 'U':
		digits = 8
	case '0', '1', '2', '3', '4', '5', '6', '7':
		digits, base, at = 3, 8, end
	default:
		if meant, ok := escapes[b]; ok {
			c[0] = meant
		}
		return c, 1, at
	}
	value, behind := number(text, at, depth-1, digits, base)
	if behind == at {
		return c, 1, at
	}
	if digits < 4 {
		c[0] = byte(value)
		return c, 1, behind
	}
	if utf16.IsSurrogate(value) {
		value, behind = pair(text, value, behind, depth-1)
	}
	if strings.HasPrefix(text[behind:], "}") && digits == 8 && b == 'u' {
		behind++
	}
	return c, utf8.EncodeRune(c[:], value), behind
}

// pair reads the second half of a character beyond the first 65,536, as JSON has them.
func pair(text string, first rune, at, depth int) (value rune, end int) {
	behind := at
	for _, want := range []byte{'\\', 'u'} {
		if behind >= len(text) {
			return first, at
		}
		var c [utf8.UTFMax]byte
		if c, _, behind = character(text, behind, depth); c[0] != want {
			return first, at
		}
	}
	second, end := number(text, behind, depth, 4, 16)
	if value = utf16.DecodeRune(first, second); value == utf8.RuneError {
		return first, at
	}
	return value, end
}

// number reads the digits of an escape; the end is the place if there are none.
func number(text string, at, depth, most int, base rune) (value rune, end int) {
	for ; most > 0 && at < len(text); most-- {
		c, _, behind := character(text, at, depth)
		digit := rune(strings.IndexByte("0123456789abcdef", c[0]|0x20))
		if c[0] < '0' || digit < 0 || digit >= base {
			break
		}
		value, at = value*base+digit, behind
	}
	return value, at
}
