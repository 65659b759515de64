package config

import "slices"

// maxSuggestBytes bounds the names that are compared: longer ones are no typos.
const maxSuggestBytes = 64

// fold lowers the ASCII letters of a member name. Every documented name is
// ASCII, so folding more than that would only admit look-alikes.
func fold(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// nearest returns the known name that is closest to name, "" when none is
// close: at most one slip per three characters, and no more than three.
func nearest(name string, known []string) string {
	if len(name) > maxSuggestBytes {
		return ""
	}
	best, bestDistance := "", min(3, len(name)/3)+1
	for _, k := range known {
		if d := editDistance(fold(name), fold(k)); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// editDistance is the number of insertions, deletions, replacements and swaps
// of neighbours between two names.
func editDistance(a, b string) int {
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = slices.Min([]int{above[j] + 1, row[j-1] + 1, above[j-1] + cost})
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(b)]
}
