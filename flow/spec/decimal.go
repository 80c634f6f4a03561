package spec

import (
	"cmp"
	"strconv"
	"strings"
)

// decimal is a number of JSON, exactly: ±0.digits × 10^point. Amounts of money and ids of more
// than 15 digits must not become floating-point numbers.
type decimal struct {
	sign   int    // 0 for zero, which has no digits
	digits string // neither starts nor ends with 0
	point  int
}

// maxExponentText limits an exponent, so that it fits an int with room for the digits. Larger
// numbers are not compared.
const maxExponentText = 10

// decimalOf reads a number in JSON's form; false if its exponent is beyond the limit.
func decimalOf(text string) (decimal, bool) {
	sign := 1
	if rest, negative := strings.CutPrefix(text, "-"); negative {
		sign, text = -1, rest
	}
	exponent := 0
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		written := text[at+1:]
		if len(written) > maxExponentText {
			return decimal{}, false
		}
		var err error
		if exponent, err = strconv.Atoi(written); err != nil {
			return decimal{}, false
		}
		text = text[:at]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	digits := whole + fraction
	point := len(whole) + exponent
	significant := strings.TrimLeft(digits, "0")
	point -= len(digits) - len(significant)
	if significant = strings.TrimRight(significant, "0"); significant == "" {
		return decimal{}, true
	}
	return decimal{sign: sign, digits: significant, point: point}, true
}

// compare is negative if d is less than e, 0 if they are the same number.
func (d decimal) compare(e decimal) int {
	if d.sign != e.sign {
		return cmp.Compare(d.sign, e.sign)
	}
	larger := cmp.Or(cmp.Compare(d.point, e.point), strings.Compare(d.digits, e.digits))
	return d.sign * larger
}
