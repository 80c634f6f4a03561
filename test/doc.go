// Package test holds what needs the whole of conductord: the order of the
// packages, the story of jobs on real processes that are killed, and the
// programs and calls that the documents show.
package test
