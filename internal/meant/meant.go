// Package meant finds the known word that is most similar to a misspelt word.
package meant

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxMisspelt limits the length of words that are compared letter by letter.
	maxMisspelt = 40
	// maxCandidates limits the number of compared words: without it, an unknown name could be
	// compared with ten thousand words, up to fifty times.
	maxCandidates = 500
)

// Hint suggests the known word that is similar to an unknown word, as the end of a sentence;
// empty if no word is similar.
func Hint(word string, known []string) string {
	if best := Word(word, known); best != "" {
		return "; did you mean " + strconv.Quote(best) + "?"
	}
	return ""
}

// Word returns the most similar known word; empty if none is similar.
func Word(word string, known []string) string {
	const most, share = 2, 3 // letters that can differ: two, and not more than a third
	best, least := "", most+1
	for i, candidate := range known {
		if i == maxCandidates {
			break
		}
		if len(word) > maxMisspelt || len(candidate) > maxMisspelt {
			continue
		}
		differing := distance([]rune(word), []rune(candidate))
		if differing < least && differing*share <= utf8.RuneCountInString(candidate) {
			best, least = candidate, differing
		}
	}
	if best == "" { // a prefix of other words, such as backoff of backoff_percent
		const fewest = 3 // letters
		for _, candidate := range known {
			if len(word) >= fewest && len(candidate) > len(word) && strings.HasPrefix(candidate, word) && (best == "" || len(candidate) < len(best)) {
				best = candidate
			}
		}
	}
	if best == "" || best == word {
		return ""
	}
	return best
}

// distance is the number of letters that must be changed, added, removed or swapped with a
// neighbour to turn one word into the other.
func distance(from, to []rune) int {
	before, previous := make([]int, len(to)+1), make([]int, len(to)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := range from {
		row := make([]int, len(to)+1)
		row[0] = i + 1
		for j := range to {
			changed := previous[j]
			if from[i] != to[j] {
				changed++
			}
			row[j+1] = min(changed, previous[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && from[i] == to[j-1] && from[i-1] == to[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, previous = previous, row
	}
	return previous[len(to)]
}
