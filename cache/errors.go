package cache

import (
	"context"
	"fmt"
	"time"
)

// TimeoutError is the outcome of a call whose own Timeout ended before the fetch did. It is a [context.DeadlineExceeded].
type TimeoutError struct {
	After time.Duration // the call's Timeout
}

func (e *TimeoutError) Error() string { return fmt.Sprintf("no answer within %v", e.After) }

// Timeout reports true, as net.Error has it.
func (e *TimeoutError) Timeout() bool { return true }

// Is makes errors.Is find context.DeadlineExceeded.
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// TooManyWaitersError is the outcome of a call that would have shared a running fetch while its owner has as many calls waiting as it may.
type TooManyWaitersError struct {
	Limit int
}

func (e *TooManyWaitersError) Error() string {
	return fmt.Sprintf("too many of this owner's requests wait for others' answers: at most %d at a time; try again when some have ended", e.Limit)
}

// PanicError is the outcome of a fetch that panicked or ended its goroutine. Its text leaves the value out, which may hold pieces of a request.
type PanicError struct {
	Value any
	Stack []byte // nil without a panic
}

func (e *PanicError) Error() string { return "internal error: the fetch broke off" }
