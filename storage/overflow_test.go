package storage

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A callback that is slower than the events does not hold up who writes, and learns that it missed some.
func TestNotifierOverflow(t *testing.T) {
	t.Parallel()
	db, err := Open(t.Context(), Config{Driver: DriverMemory})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	for _, table := range []string{"a", "b"} {
		_, err := db.Write().Exec("CREATE TABLE " + table + " (id INTEGER PRIMARY KEY)")
		require.NoError(t, err)
	}
	running, goOn := make(chan struct{}), make(chan struct{})
	events := make(chan Event, 10)
	n := db.Notifier()
	for _, table := range []string{"a", "b"} {
		_, err := n.Subscribe(t.Context(), table, []string{"id"}, nil, func(e Event) {
			if e.Op == OpInsert {
				close(running)
				<-goOn
			}
			events <- e
		})
		require.NoError(t, err)
	}
	a := n.topics["a(id) delete insert update"]
	n.publish(a, Event{Table: "a", Op: OpInsert})
	<-running
	for range maxQueuedEvents + 1 {
		n.publish(a, Event{Table: "a", Op: OpUpdate})
	}
	n.publish(a, Event{Table: "a", Op: OpDelete})
	close(goOn)
	require.Equal(t, OpInsert, (<-events).Op)
	require.ElementsMatch(t, []Event{{Table: "a", Op: OpChanged}, {Table: "b", Op: OpChanged}}, []Event{<-events, <-events})
	require.Equal(t, OpDelete, (<-events).Op, "what comes after it is told of again")
}
