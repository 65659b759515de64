package gateway

import (
	"context"
	"time"
)

// work is what a request holds until it is dispatched or refused: its bytes in
// the reading budget and, if it is large, one of the places for large ones. It
// belongs to the request's goroutine.
type work struct {
	endpoint *clientEndpoint
	bytes    int64
	place    bool
}

// begin waits for a place if the body is large; false: there was none before
// the deadline or the client's leaving.
func (w *work) begin(ctx context.Context, deadline time.Time) bool {
	if w.bytes <= largeMessage {
		return true
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case w.endpoint.large <- struct{}{}:
		w.place = true
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

// done gives everything back. Calling it again does nothing.
func (w *work) done() {
	if w.place {
		<-w.endpoint.large
		w.place = false
	}
	w.endpoint.reading.Add(-w.bytes)
	w.bytes = 0
}
