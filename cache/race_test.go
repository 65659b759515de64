//go:build race

package cache

// The race detector makes floods ten times slower.
const floodDivisor = 10
