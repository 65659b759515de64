package gateway

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// conformance: 4.queue.bounds
func TestQueueBounds(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	q := newSendQueue()
	for range maxQueueMessages {
		_, err := q.push(outgoing{size: 1}, now)
		require.NoError(t, err)
	}
	_, err := q.push(outgoing{size: 1}, now)
	require.ErrorIs(t, err, errQueueFull)
	full, err := q.push(outgoing{size: 1}, now.Add(3*time.Second))
	require.ErrorIs(t, err, errQueueFull)
	require.Equal(t, 3*time.Second, full)
	_, ok := q.pop()
	require.True(t, ok)
	_, err = q.push(outgoing{size: 1}, now)
	require.NoError(t, err)

	q = newSendQueue()
	_, err = q.push(outgoing{size: maxQueueBytes + 1}, now)
	require.NoError(t, err, "one message always fits")
	_, err = q.push(outgoing{size: 1}, now)
	require.ErrorIs(t, err, errQueueFull)
}

func TestQueueKeepsOrderAndReturnsTheRest(t *testing.T) {
	t.Parallel()
	q := newSendQueue()
	next, popped := 0, 0
	for range 3000 {
		for range 2 {
			if _, err := q.push(outgoing{size: next, attempt: uint32(next)}, time.Time{}); err == nil {
				next++
			}
		}
		m, ok := q.pop()
		require.True(t, ok)
		require.EqualValues(t, popped, m.attempt)
		popped++
	}
	rest := q.close()
	require.Len(t, rest, next-popped)
	require.EqualValues(t, popped, rest[0].attempt)
	_, err := q.push(outgoing{}, time.Time{})
	require.ErrorIs(t, err, errSessionClosed)
	require.Nil(t, q.close())
}

func TestQueueDropsWhatNobodyWants(t *testing.T) {
	t.Parallel()
	answered, open := &flight{}, &flight{}
	answered.answered.Store(true)
	q := newSendQueue()
	for i := range maxQueueMessages {
		f := answered
		if i%2 == 0 {
			f = open
		}
		d := &delivery{flight: f}
		d.state.Store(1<<2 | phaseQueued)
		_, err := q.push(outgoing{size: 1, tracker: d, attempt: 1}, time.Time{})
		require.NoError(t, err)
	}
	_, err := q.push(outgoing{size: 1}, time.Time{})
	require.NoError(t, err, "answered requests make room")
	require.Len(t, q.items, maxQueueMessages/2+1)
	require.Equal(t, maxQueueMessages/2+1, q.bytes)
}

// conformance: 5.retry.backoff
func TestBackoff(t *testing.T) {
	t.Parallel()
	const initial, most = 100 * time.Millisecond, 30 * time.Second
	require.Equal(t, initial, backoff(initial, most, 2, 0, 0.999))
	require.Equal(t, initial, backoff(initial, most, 2, 3, 0))
	require.Equal(t, 450*time.Millisecond, backoff(initial, most, 2, 3, 0.5))
	require.InDelta(t, float64(most), float64(backoff(initial, most, 2, 1000, 0.999999)), float64(time.Millisecond))
	require.Equal(t, 50*time.Millisecond, backoff(initial, 50*time.Millisecond, 2, 5, 0.5))
}

// conformance: 4.malformed.hundredth
func TestMalformedWindow(t *testing.T) {
	t.Parallel()
	var w malformedWindow
	now := time.Unix(0, 0)
	for i := range maxMalformed - 1 {
		require.False(t, w.add(now.Add(time.Duration(i)*time.Millisecond)))
	}
	require.True(t, w.add(now.Add(time.Minute-time.Millisecond)))

	w = malformedWindow{}
	for i := range 10 * maxMalformed { // 99 a minute for ten minutes are tolerated
		require.False(t, w.add(now.Add(time.Duration(i)*time.Minute/(maxMalformed-1))), i)
	}
}

func TestByteBudget(t *testing.T) {
	t.Parallel()
	b := newByteBudget(100)
	require.True(t, b.takeAnswer(50, false))
	require.False(t, b.takeAnswer(1, false), "answers take at most half")
	require.False(t, b.takeBody("a", 26), "past half, an owner gets a quarter")
	require.True(t, b.takeBody("a", 25))
	require.False(t, b.takeBody("a", 1))
	require.True(t, b.takeBody("b", 25))
	require.False(t, b.takeBody("c", 1), "all is taken")
	require.True(t, b.takeAnswer(10, true))
	b.giveAnswer(60)
	b.giveBody("a", 25)
	b.giveBody("b", 25)
	require.Zero(t, b.held())
	require.Zero(t, b.answers)
	require.Empty(t, b.owners)
}
