package storage

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
)

const (
	listenPing     = 30 * time.Second
	listenPingWait = 10 * time.Second
	listenMinWait  = 100 * time.Millisecond // before connecting again, doubled each time
	listenMaxWait  = 10 * time.Second
)

// triggerVersion changes with what triggerSQL returns, so that programs of before and after keep theirs.
const triggerVersion = 1

// postgresChanges learns of changes from notifications that a trigger sends, on one connection that listens.
type postgresChanges struct {
	n    *Notifier
	ping time.Duration // a quiet connection is asked for a sign of life that often

	mu        sync.Mutex
	started   bool
	channels  map[string]*channel // by name
	interrupt context.CancelFunc  // ends the wait for a notification; nil: nothing waits
}

// channel is where a topic's notifications come in.
type channel struct {
	topic     *topic
	listening bool            // on the present connection
	known     bool            // was listening at some time: if it is not, events may be lost
	waiting   []chan struct{} // closed when listening
}

func (c *postgresChanges) watch(ctx context.Context, t *topic) error {
	name, err := c.install(ctx, t)
	if err != nil {
		return err
	}
	listening, err := c.listen(name, t)
	if err != nil {
		return err
	}
	select {
	case <-listening:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.n.ctx.Done():
		return ErrNotifierClosed
	}
}

// install makes the trigger where it is missing, and returns the name that it, its function and its channel share. The name covers all
// that the function's text depends on, triggerVersion among it, and the schema, since channels belong to the whole database.
func (c *postgresChanges) install(ctx context.Context, t *topic) (name string, err error) {
	err = RunInTx(ctx, c.n.db.write, func(ctx context.Context, tx *sql.Tx) error {
		var schema string
		if err := tx.QueryRowContext(ctx, "SELECT current_schema()").Scan(&schema); err != nil {
			return err
		}
		// A function that names a column that is not there would fail whoever writes.
		var columns int
		err := tx.QueryRowContext(ctx, "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND attname = ANY ($2)",
			t.table, t.keys).Scan(&columns)
		if err != nil {
			return err
		}
		if columns != len(t.keys) {
			return fmt.Errorf("there is no table %s with the columns %s", t.table, strings.Join(t.keys, ", "))
		}
		digest := sha256.Sum256(fmt.Appendf(nil, "%d %s %s", triggerVersion, schema, t.id))
		name = fmt.Sprintf("notify_%x", digest[:8])
		if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", name); err != nil {
			return err
		}
		var exists bool
		err = tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM pg_trigger WHERE tgname = $1 AND tgrelid = to_regclass($2))",
			name, t.table).Scan(&exists)
		if err != nil || exists { // making it again would hold up everyone who writes
			return err
		}
		_, err = tx.ExecContext(ctx, triggerSQL(name, t))
		return err
	})
	return name, err
}

// triggerSQL returns the statements that make a topic's function and trigger.
func triggerSQL(name string, t *topic) string {
	row := func(which string) string {
		var columns []string
		for _, key := range t.keys {
			columns = append(columns, fmt.Sprintf("%s.%q", which, key))
		}
		return strings.Join(columns, ", ")
	}
	// A payload must be shorter than 8000 bytes, or the statement that changes the row would fail.
	send := func(which string) string {
		return fmt.Sprintf(`payload := json_build_array(TG_OP, %s::text)::text;
			PERFORM pg_notify('%s', CASE WHEN octet_length(payload) < 8000 THEN payload ELSE '["CHANGED"]' END);`,
			strings.ReplaceAll(row(which), ", ", "::text, "), name)
	}
	var ops []string
	for _, op := range t.ops {
		ops = append(ops, strings.ToUpper(string(op)))
	}
	return fmt.Sprintf(`
		CREATE OR REPLACE FUNCTION %[1]q() RETURNS trigger LANGUAGE plpgsql AS $body$
		DECLARE payload text;
		BEGIN
			IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND ROW(%[3]s) IS DISTINCT FROM ROW(%[4]s)) THEN
				%[5]s
			END IF;
			IF TG_OP <> 'DELETE' THEN
				%[6]s
			END IF;
			RETURN NULL;
		END $body$;
		CREATE TRIGGER %[1]q AFTER %[7]s ON %[2]q FOR EACH ROW EXECUTE FUNCTION %[1]q()`,
		name, t.table, row("OLD"), row("NEW"), send("OLD"), send("NEW"), strings.Join(ops, " OR "))
}

// listen returns a channel that is closed when the connection listens to the name.
func (c *postgresChanges) listen(name string, t *topic) (<-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.channels[name]
	if ch == nil {
		ch = &channel{topic: t}
		c.channels[name] = ch
	}
	listening := make(chan struct{})
	if ch.listening {
		close(listening)
		return listening, nil
	}
	ch.waiting = append(ch.waiting, listening)
	if c.interrupt != nil {
		c.interrupt()
	}
	if !c.started {
		if !c.n.spawn(c.run) {
			return nil, ErrNotifierClosed
		}
		c.started = true
	}
	return listening, nil
}

// run keeps a connection that listens until the notifier is closed.
func (c *postgresChanges) run() {
	ctx, wait := c.n.ctx, listenMinWait
	for {
		err := c.serve(ctx, func() { wait = listenMinWait })
		if ctx.Err() != nil {
			return
		}
		c.n.db.log.Warn("the connection for change notices is lost, connecting again", zap.Error(err))
		c.n.report(fmt.Errorf("storage: listening for changes: %w", err))
		if !sleep(ctx, wait) {
			return
		}
		wait = min(2*wait, listenMaxWait)
	}
}

// serve listens on one connection until it fails. It calls connected when it has one.
func (c *postgresChanges) serve(ctx context.Context, connected func()) error {
	conn, err := pgx.ConnectConfig(ctx, c.n.db.server.Copy())
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	connected()
	c.mu.Lock()
	for _, ch := range c.channels {
		ch.listening = false
	}
	c.mu.Unlock()
	for {
		if err := c.listenToNew(ctx, conn); err != nil {
			return err
		}
		notification, err := c.wait(ctx, conn)
		if err != nil {
			return err
		}
		if notification != nil {
			c.received(notification)
		}
	}
}

// listenToNew listens to the channels that the connection does not listen to yet.
func (c *postgresChanges) listenToNew(ctx context.Context, conn *pgx.Conn) error {
	for {
		name, ch := c.next()
		if ch == nil {
			return nil
		}
		if _, err := conn.Exec(ctx, "LISTEN "+name); err != nil {
			return err
		}
		c.mu.Lock()
		lost := ch.known
		ch.listening, ch.known = true, true
		for _, listening := range ch.waiting {
			close(listening)
		}
		ch.waiting = nil
		c.mu.Unlock()
		if lost {
			c.n.publish(ch.topic, Event{Table: ch.topic.table, Op: OpChanged})
		}
	}
}

func (c *postgresChanges) next() (string, *channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, ch := range c.channels {
		if !ch.listening {
			return name, ch
		}
	}
	return "", nil
}

// wait returns the next notification, or nil when there is a channel to listen to or the connection was found alive after a while of silence.
func (c *postgresChanges) wait(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	waiting, cancel := context.WithTimeout(ctx, c.ping)
	defer cancel()
	c.mu.Lock()
	for _, ch := range c.channels {
		if !ch.listening { // came in since we looked, when there was nothing to interrupt
			c.mu.Unlock()
			return nil, nil
		}
	}
	c.interrupt = cancel
	c.mu.Unlock()
	notification, err := conn.WaitForNotification(waiting)
	c.mu.Lock()
	c.interrupt = nil
	c.mu.Unlock()
	if err == nil || waiting.Err() == nil || ctx.Err() != nil {
		return notification, err
	}
	if errors.Is(waiting.Err(), context.DeadlineExceeded) {
		ctx, cancel := context.WithTimeout(ctx, listenPingWait)
		defer cancel()
		return nil, conn.Ping(ctx)
	}
	return nil, nil
}

func (c *postgresChanges) received(notification *pgconn.Notification) {
	c.mu.Lock()
	ch := c.channels[notification.Channel]
	c.mu.Unlock()
	if ch == nil {
		return
	}
	e := Event{Table: ch.topic.table, Op: OpChanged}
	var payload []*string
	if json.Unmarshal([]byte(notification.Payload), &payload) == nil && len(payload) == 1+len(ch.topic.keys) && payload[0] != nil {
		e.Op = Op(strings.ToLower(*payload[0]))
		for _, value := range payload[1:] {
			if value == nil {
				value = new(string)
			}
			e.Key = append(e.Key, *value)
		}
	}
	c.n.publish(ch.topic, e)
}
