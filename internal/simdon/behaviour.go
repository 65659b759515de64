package simdon

import (
	"fmt"
	"strings"
	"time"
)

// Behaviour is what a node does with triggers. The zero value is Accept.
type Behaviour struct {
	Kind Kind
	// Delay is how long Slow waits before it answers, and Flip before it corrects itself. 0: DefaultDelay.
	Delay time.Duration
}

// DefaultDelay is the Delay of a Behaviour that names none. It is less than the grace that gateways give to nodes that
// change their minds (noQuorumGraceMs, one second by default).
const DefaultDelay = 300 * time.Millisecond

// Kind is one way for a node to behave.
type Kind string

// The kinds. Silent, Frozen and Absent are told apart by their sessions.
const (
	Accept   Kind = "accept"   // answers at once, as a healthy node does
	Slow     Kind = "slow"     // answers the same after Delay
	Silent   Kind = "silent"   // reads and reports its workflows, but answers no trigger
	Conflict Kind = "conflict" // answers at once with an execution id that no other node has
	Flip     Kind = "flip"     // answers as Conflict does and, after Delay, as Accept
	Error    Kind = "error"    // answers at once with an error, the same on every node
	Frozen   Kind = "frozen"   // has a live session and does not read its socket
	Absent   Kind = "absent"   // is not connected
)

// Kinds lists all kinds, for help texts.
func Kinds() []Kind { return []Kind{Accept, Slow, Silent, Conflict, Flip, Error, Frozen, Absent} }

// ParseBehaviour reads "slow" or, with a delay, "slow:2s".
func ParseBehaviour(s string) (Behaviour, error) {
	name, delay, hasDelay := strings.Cut(s, ":")
	b := Behaviour{Kind: Kind(name)}
	var names []string
	known := false
	for _, k := range Kinds() {
		names = append(names, string(k))
		known = known || k == b.Kind
	}
	if !known {
		return Behaviour{}, fmt.Errorf("%q is no behaviour: use one of %s", name, strings.Join(names, ", "))
	}
	if !hasDelay {
		return b, nil
	}
	if b.Kind != Slow && b.Kind != Flip {
		return Behaviour{}, fmt.Errorf("%s takes no delay: only %s and %s do", name, Slow, Flip)
	}
	d, err := time.ParseDuration(delay)
	if err != nil || d <= 0 {
		return Behaviour{}, fmt.Errorf("%q is no delay: use a duration such as 2s or 150ms", delay)
	}
	b.Delay = d
	return b, nil
}

// String is what ParseBehaviour reads.
func (b Behaviour) String() string {
	if b.Delay > 0 {
		return string(b.kind()) + ":" + b.Delay.String()
	}
	return string(b.kind())
}

func (b Behaviour) kind() Kind {
	if b.Kind == "" {
		return Accept
	}
	return b.Kind
}

func (b Behaviour) delay() time.Duration {
	if b.Delay == 0 {
		return DefaultDelay
	}
	return b.Delay
}
