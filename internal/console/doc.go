// Package console writes for people at a terminal: colours where there is one, times, tables, and the lines in which the demos tell
// what happens.
package console
