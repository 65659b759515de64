// Package soak says how long the tests run that look for what happens seldom: those whose names begin with TestSoak.
package soak

import (
	"fmt"
	"os"
	"time"
)

// Variable is the environment variable that says for how long: `make check` and `make soak` set it.
const Variable = "DONGATE_SOAK"

// For returns the duration that [Variable] names, or else short.
func For(short time.Duration) time.Duration {
	text := os.Getenv(Variable)
	if text == "" {
		return short
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", Variable, err))
	}
	return d
}
