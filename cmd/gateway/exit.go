package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// The exit codes, one per kind of thing that whoever called us can do next.
const (
	exitOK           = 0
	exitFailure      = 1
	exitUsage        = 2
	exitConfig       = 3
	exitLocal        = 4
	exitStart        = 5
	exitStorage      = 6
	exitRequest      = 10
	exitUnauthorized = 11
	exitRateLimited  = 12
	exitConflict     = 13
	exitNoQuorum     = 14
	exitUnavailable  = 15
	exitNodeError    = 16
	exitInterrupted  = 130
)

// exitCodes documents the codes, for the root help and docs/commands.md.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "done; for serve, demo --keep and node also: ended by SIGTERM or SIGINT"},
	{exitFailure, "failed in a way that has no code of its own; demo: something was not as expected"},
	{exitUsage, "the command line is wrong: unknown command or flag, missing or bad value"},
	{exitConfig, "the configuration is wrong, or a gateway refused to reload it; every problem is listed"},
	{exitLocal, "a key, password or input file cannot be read or used"},
	{exitStart, "serve: a listener cannot be opened, or another process runs the relayer on this database"},
	{exitStorage, "the database cannot be opened, is damaged, or has a schema that is not this gateway's"},
	{exitRequest, "trigger: the request was refused as wrong, or the workflow is unknown"},
	{exitUnauthorized, "trigger: the signer is not authorised, or the token was refused or used before"},
	{exitRateLimited, "trigger: a rate limit refused it; try again later"},
	{exitConflict, "trigger: the request id is in use or was used lately"},
	{exitNoQuorum, "trigger: the nodes did not agree, or not in time; it may have run"},
	{exitUnavailable, "trigger: no gateway or no node could take it, or none answered; reload: no gateway answered"},
	{exitNodeError, "trigger: the nodes agreed on an error"},
	{exitInterrupted, "ended by a signal: a second one, or the first where there is nothing to drain"},
}

// exitError is an error with the exit code it stands for.
type exitError struct {
	code int
	err  error
	hint string // what to do next; "" when the text says it
	told bool   // the user has been told already
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// fail is an error for the user with its exit code.
func fail(code int, format string, args ...any) *exitError {
	return &exitError{code: code, err: fmt.Errorf(format, args...)}
}

// withHint adds what the user can do about it.
func (e *exitError) withHint(format string, args ...any) *exitError {
	e.hint = fmt.Sprintf(format, args...)
	return e
}

// report tells the user about err, unless that has been done, and returns the
// exit code.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	code, hint := exitFailure, ""
	var e *exitError
	if errors.As(err, &e) {
		if e.told {
			return e.code
		}
		code, hint = e.code, e.hint
	} else if s := (stopSignal{}); errors.As(err, &s) {
		code = exitInterrupted
	}
	fmt.Fprintf(stderr, "gateway: %s\n", strings.TrimSpace(err.Error()))
	if hint != "" {
		fmt.Fprintf(stderr, "%s\n", hint)
	}
	return code
}
