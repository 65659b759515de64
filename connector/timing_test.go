package connector_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"dongate/connector"
	"dongate/jsonrpc"
)

// A signed second is good once, so a node never tries twice within one.
// conformance: 4.header.once
func TestRetriesBackOffAndNeverReuseASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		_, stop := start(t, func(c *connector.Config) {
			c.Gateways = []connector.Gateway{{URL: "ws://nobody/node", ID: "x"}}
			c.Backoff = connector.Backoff{} // the defaults: 500 ms, ×2, 30 s
			c.Dial = func(context.Context, string, string) (net.Conn, error) {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(began))
				return nil, errors.New("connection refused")
			}
		})
		time.Sleep(10 * time.Minute)
		stop()
		require.Zero(t, at[0], "the first attempt is made at once")
		step := 500 * time.Millisecond
		for i := 1; i < len(at); i++ {
			gap := at[i] - at[i-1]
			require.Greater(t, at[i]/time.Second, at[i-1]/time.Second, "attempts %d and %d in one second", i-1, i)
			require.GreaterOrEqual(t, gap, step/2, "attempt %d", i)
			if at[i]%time.Second != 0 { // at a second's very beginning it was waited for
				require.LessOrEqual(t, gap, step, "attempt %d", i)
			} else {
				require.LessOrEqual(t, gap, max(step, time.Second), "attempt %d", i)
			}
			step = min(2*step, 30*time.Second)
		}
		require.InDelta(t, 7+600/22.5, len(at), 12, "about one attempt per 22 s in the end")
	})
}

func TestBackoffStartsOverAfterAStableSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newPipeDouble(t)
		var mu sync.Mutex
		var at []time.Time
		start(t, func(c *connector.Config) {
			c.Backoff = connector.Backoff{Initial: 2 * time.Second, Max: 16 * time.Second, Multiplier: 2}
			c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				mu.Lock()
				at = append(at, time.Now())
				mu.Unlock()
				return d.dial(ctx, network, address)
			}
		}, d)
		gap := func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return at[len(at)-1].Sub(at[len(at)-2])
		}
		d.accept().close() // taken in and dropped at once: 1 to 2 s, 2 to 4 s, 4 to 8 s
		for _, step := range []time.Duration{2, 4, 8} {
			p := d.accept()
			require.GreaterOrEqual(t, gap(), step*time.Second/2)
			require.LessOrEqual(t, gap(), step*time.Second+time.Second)
			if step == 8 {
				time.Sleep(connector.StableSession)
			}
			p.close()
		}
		d.accept()
		require.LessOrEqual(t, gap(), connector.StableSession+3*time.Second)
	})
}

func TestSilentGatewayCountsAsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newPipeDouble(t)
		c, _ := start(t, func(c *connector.Config) { c.ReadTimeout = time.Minute }, d)
		p := d.accept()
		go func() { // reads the pongs
			for {
				if _, _, err := p.conn.NextReader(); err != nil {
					return
				}
			}
		}()
		waitConnected(t, c, 1)
		for range 5 { // pings keep it alive
			time.Sleep(50 * time.Second)
			require.NoError(t, p.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(patience)))
		}
		synctest.Wait()
		require.True(t, c.Connected(d.url))
		time.Sleep(59 * time.Second)
		synctest.Wait()
		require.True(t, c.Connected(d.url))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 1, c.Stats().Gateways[0].Lost)
	})
}

// A gateway that stops reading holds up nobody but itself, and for no longer than the write timeout.
func TestGatewayThatStopsReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		frozen, healthy := newPipeDouble(t), newPipeDouble(t)
		healthy.url = "ws://healthy.test/node"
		c, _ := start(t, func(c *connector.Config) {
			c.Backoff = connector.Backoff{Initial: time.Second, Max: time.Second}
			c.WriteTimeout = 5 * time.Second
			c.QueueMessages = 3
			c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if address == "healthy.test:80" {
					return healthy.dial(ctx, network, address)
				}
				return frozen.dial(ctx, network, address)
			}
		}, frozen, healthy)
		f, h := frozen.accept(), healthy.accept()
		var first sync.WaitGroup
		first.Go(func() { // reads the pong of the handshake, and no more
			pong := make(chan struct{})
			f.conn.SetPongHandler(func(string) error { close(pong); return errors.New("that will do") })
			_ = f.ended()
			<-pong
		})
		first.Wait()
		waitConnected(t, c, 2)
		message := &jsonrpc.Response{ID: "a", Method: "m", Result: jsontext.Value(`1`)}
		for range 3 {
			require.NoError(t, c.Send(frozen.url, message))
		}
		require.ErrorIs(t, c.Send(frozen.url, message), connector.ErrQueueFull)
		began := time.Now()
		require.NoError(t, c.Send(healthy.url, message))
		h.read()
		require.Zero(t, time.Since(began))
		time.Sleep(4 * time.Second)
		synctest.Wait()
		require.True(t, c.Connected(frozen.url))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 1, c.Stats().Gateways[0].Lost)
		require.True(t, c.Connected(healthy.url))

		// The answers were not lost with the connection.
		f = frozen.accept()
		for range 3 {
			_, r := f.read()
			require.Equal(t, "a", r.ID)
		}
	})
}

func TestStopDoesNotWaitForAGatewayThatStoppedReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newPipeDouble(t)
		c, stop := start(t, func(c *connector.Config) { c.WriteTimeout = time.Hour }, d)
		d.accept() // nobody reads, not even the pong
		waitConnected(t, c, 1)
		began := time.Now()
		stop()
		require.LessOrEqual(t, time.Since(began), 2*time.Second)
	})
}

func TestAnswersExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newPipeDouble(t)
		var up atomic.Bool
		d.answer(func(w http.ResponseWriter, _ *http.Request) bool {
			if !up.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return !up.Load()
		})
		c, _ := start(t, func(c *connector.Config) {
			c.AnswerTTL = 30 * time.Second
			c.QueueMessages = 2
			c.Backoff = connector.Backoff{Initial: time.Second, Max: time.Second}
		}, d)
		send := func(id string) error {
			return c.Send(d.url, &jsonrpc.Response{ID: id, Method: "m", Result: jsontext.Value(`1`)})
		}
		require.NoError(t, send("old"))
		time.Sleep(20 * time.Second)
		require.NoError(t, send("newer"))
		require.ErrorIs(t, send("too many"), connector.ErrQueueFull)
		time.Sleep(11 * time.Second)
		require.NoError(t, send("newest"), "an expired one makes room")
		require.EqualValues(t, 1, c.Stats().Gateways[0].Expired)
		time.Sleep(20 * time.Second)
		up.Store(true)
		p := d.accept()
		_, r := p.read()
		require.Equal(t, "newest", r.ID)
		require.EqualValues(t, 2, c.Stats().Gateways[0].Expired)
	})
}

func TestPingFloodCostsOnePongAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newPipeDouble(t)
		d.silent.Store(true)
		c, _ := start(t, nil, d)
		p := d.accept()
		var pongs []string
		p.conn.SetPongHandler(func(s string) error { pongs = append(pongs, s); return nil })
		for i := range 1000 { // nobody reads the pongs yet
			require.NoError(t, p.conn.WriteControl(websocket.PingMessage, []byte{byte(i), byte(i >> 8)}, time.Now().Add(patience)))
		}
		waitConnected(t, c, 1)
		for range 2 { // a pong and an answer take turns
			p.send("after", "unknown", `null`)
			p.read()
		}
		require.LessOrEqual(t, len(pongs), 2)
		require.Equal(t, string([]byte{999 & 0xff, 999 >> 8}), pongs[len(pongs)-1], "the latest is answered")
	})
}

// An answer is waited for until five seconds after the action's own time, or until the caller has had enough.
func TestUnansweredActionEnds(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]time.Duration{
		0: 65 * time.Second, time.Second: 6 * time.Second, time.Hour: 65 * time.Second, 60 * time.Second: 65 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newPipeDouble(t)
			c, _ := start(t, nil, d)
			p := d.accept()
			waitConnected(t, c, 1)
			began := time.Now()
			a := page()
			a.Timeout = timeout
			done := begin(context.Background(), c, a)
			_, m := p.read()
			o := <-done
			require.ErrorIs(t, o.err, connector.ErrUnanswered)
			require.Equal(t, want, time.Since(began))
			require.Zero(t, c.Stats().Actions)
			p.answerAction(m.ID, found)
			synctest.Wait()
			require.EqualValues(t, 1, c.Stats().Gateways[0].Unsolicited, "too late")

			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			done = begin(ctx, c, a)
			_, _ = p.read()
			require.ErrorIs(t, (<-done).err, context.DeadlineExceeded)
		})
	}
}

// An action for a gateway that is away is sent when it is back, and never after its time.
func TestActionForAGatewayThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newPipeDouble(t)
		c := newConnector(t, nil, d)
		a := page()
		a.Gateway, a.Timeout = d.url, time.Second
		require.ErrorIs(t, (<-begin(context.Background(), c, a)).err, connector.ErrUnanswered)
		require.Zero(t, c.Stats().Gateways[0].Queued)
		a.URL += "/second"
		done := begin(context.Background(), c, a)
		time.Sleep(5 * time.Second)
		run(t, c)
		p := d.accept()
		_, m := p.read()
		require.Contains(t, string(m.Result), "/second")
		p.answerAction(m.ID, found)
		require.NoError(t, (<-done).err)
	})
}
