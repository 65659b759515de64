//go:build race

package gateway

// The race detector makes floods ten times slower.
const raceEnabled = true
