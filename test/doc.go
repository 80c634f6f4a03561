// Package test has the tests that need all of conductord: the order of packages, jobs on real
// processes that are killed, and the programs and calls in the documents.
package test
