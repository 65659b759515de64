package storage

import "time"

// SetPing sets how often the connection that listens is asked for a sign of life. To be called before the first Subscribe.
func (n *Notifier) SetPing(d time.Duration) { n.source.(*postgresChanges).ping = d }
