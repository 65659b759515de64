package storage

import (
	"context"
	"database/sql/driver"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteChanges learns of changes from SQLite's hooks on the writing connection.
type sqliteChanges struct {
	notifier atomic.Pointer[Notifier]
	db       *DB

	mu      sync.Mutex // guards writing watched
	watched atomic.Pointer[map[string][]watchedTopic]
}

// watchedTopic is a topic and where its key columns are in a row.
type watchedTopic struct {
	*topic
	columns []int
	width   int // columns of the table
}

func (c *sqliteChanges) watch(ctx context.Context, t *topic) error {
	names, err := collect[string](ctx, c.db.read, "SELECT name FROM pragma_table_info($1) ORDER BY cid", t.table)
	if err != nil {
		return err
	}
	w := watchedTopic{topic: t, width: len(names)}
	for _, key := range t.keys {
		i := slices.Index(names, key)
		if i < 0 {
			return fmt.Errorf("there is no table %s with the columns %s", t.table, strings.Join(t.keys, ", "))
		}
		w.columns = append(w.columns, i)
	}
	// Having the connection means that no transaction is half-way.
	conn, err := c.db.write.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(driverConn any) error {
		c.add(w)
		driverConn.(*hookedConn).install()
		return nil
	})
}

// add replaces what is known of the topic.
func (c *sqliteChanges) add(w watchedTopic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string][]watchedTopic{}
	if old := c.watched.Load(); old != nil {
		for table, topics := range *old {
			all[table] = slices.DeleteFunc(slices.Clone(topics), func(o watchedTopic) bool { return o.topic == w.topic })
		}
	}
	all[w.table] = append(all[w.table], w)
	c.watched.Store(&all)
}

// hookingConnector makes connections that tell of changes once something is watched.
type hookingConnector struct {
	driver.Connector
	changes *sqliteChanges
}

func (h hookingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := h.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	hooked := &hookedConn{sqliteConn: conn.(sqliteConn), changes: h.changes}
	if h.changes.watched.Load() != nil {
		hooked.install()
	}
	return hooked, nil
}

// sqliteConn is what connections of the driver can do, as far as database/sql uses it.
type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// hookedConn is a connection that collects what its transactions change. As any connection it is used by one goroutine at a time.
type hookedConn struct {
	sqliteConn
	changes            *sqliteChanges
	installed          bool
	pending, committed []queuedEvent
	collapsed          map[*topic]bool // topics whose pending events became one OpChanged
}

// Unwrap returns the driver's own connection, which is what its functions expect.
func (c *hookedConn) Unwrap() driver.Conn { return c.sqliteConn }

// IsValid is called whenever the connection is given back. Only then are changes told of: the hook that says that a transaction commits
// is called before others can see it.
func (c *hookedConn) IsValid() bool {
	if len(c.committed) > 0 {
		if n := c.changes.notifier.Load(); n != nil {
			for _, q := range c.committed {
				n.publish(q.topic, q.event)
			}
		}
		c.committed = nil
	}
	return c.sqliteConn.IsValid()
}

func (c *hookedConn) install() {
	if c.installed {
		return
	}
	c.installed = true
	hooks := c.sqliteConn.(sqlite.HookRegisterer)
	hooks.RegisterPreUpdateHook(c.changed)
	hooks.RegisterCommitHook(func() int32 {
		c.committed = append(c.committed, c.pending...)
		c.pending, c.collapsed = nil, nil
		return 0 // go on
	})
	hooks.RegisterRollbackHook(func() { c.pending, c.collapsed = nil, nil })
}

// changed is called for every row that is about to change.
func (c *hookedConn) changed(d sqlite.SQLitePreUpdateData) {
	if d.DatabaseName != "main" {
		return
	}
	op := map[int32]Op{sqlite3.SQLITE_INSERT: OpInsert, sqlite3.SQLITE_UPDATE: OpUpdate, sqlite3.SQLITE_DELETE: OpDelete}[d.Op]
	for _, w := range (*c.changes.watched.Load())[d.TableName] {
		if c.collapsed[w.topic] || !slices.Contains(w.ops, op) {
			continue
		}
		if len(c.pending) >= maxQueuedEvents || d.Count() != w.width {
			c.collapse(w.topic) // too many, or the table was rebuilt and the key may be elsewhere
			continue
		}
		var before, after []string
		if op != OpInsert {
			before = w.key(d.Old)
		}
		if op != OpDelete {
			after = w.key(d.New)
		}
		for i, key := range [][]string{before, after} {
			if key != nil && (i == 1 || !slices.Equal(before, after)) {
				c.pending = append(c.pending, queuedEvent{w.topic, Event{w.table, op, key}})
			}
		}
	}
}

// collapse makes one OpChanged of what the transaction did to a topic's table.
func (c *hookedConn) collapse(t *topic) {
	if c.collapsed == nil {
		c.collapsed = map[*topic]bool{}
	}
	c.collapsed[t] = true
	c.pending = append(slices.DeleteFunc(c.pending, func(q queuedEvent) bool { return q.topic == t }),
		queuedEvent{t, Event{Table: t.table, Op: OpChanged}})
}

// key returns the key of a row that read reads.
func (w watchedTopic) key(read func(...any) error) []string {
	row := make([]any, slices.Max(w.columns)+1)
	if read(row...) != nil {
		return nil // out of memory
	}
	key := make([]string, len(w.columns))
	for i, column := range w.columns {
		switch v := row[column].(type) {
		case nil:
		case int64:
			key[i] = strconv.FormatInt(v, 10)
		case float64:
			key[i] = strconv.FormatFloat(v, 'g', -1, 64)
		case []byte:
			key[i] = `\x` + hex.EncodeToString(v)
		case string:
			key[i] = v
		}
	}
	return key
}
