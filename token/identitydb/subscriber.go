package identitydb

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"go.uber.org/zap"

	"dongate/storage"
	"dongate/token"
)

// DefaultPoll is how often a [Subscriber] looks by itself.
const DefaultPoll = 10 * time.Second

// SubscriberOptions say what is done with configurations.
type SubscriberOptions struct {
	Types []string // of configurations; none: all
	// Handle is called with every configuration, those that are stored when Run begins first. One that fails is handled again at the next look, and
	// does not hold up others. It is called by one goroutine, and again with a configuration that changed.
	Handle func(ctx context.Context, c token.IdentityConfiguration) error
	Poll   time.Duration // how often it looks without being told, for what other processes store in an SQLite file; 0: DefaultPoll
	Log    *zap.Logger   // nil: none
}

// Subscriber hands over new identity configurations while the process runs.
type Subscriber struct {
	store *Store
	o     SubscriberOptions
}

// NewSubscriber returns a Subscriber; see Run.
func NewSubscriber(s *Store, o SubscriberOptions) (*Subscriber, error) {
	if o.Handle == nil || o.Poll < 0 {
		return nil, errors.New("identitydb: a subscriber needs somebody to handle configurations, and a time that is not negative")
	}
	if o.Poll == 0 {
		o.Poll = DefaultPoll
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return &Subscriber{s, o}, nil
}

// Run hands over configurations until ctx ends, and returns why it did. A database that fails is asked again.
func (s *Subscriber) Run(ctx context.Context) error {
	look := make(chan struct{}, 1)
	tick := time.NewTicker(s.o.Poll)
	defer tick.Stop()
	var end func()
	defer func() {
		if end != nil {
			end()
		}
	}()
	handled := map[[3]string][sha256.Size]byte{} // content by id, type and URL
	for ctx.Err() == nil {
		if end == nil { // before looking, so that nothing is stored unseen in between
			var err error
			end, err = s.store.SubscribeConfigurations(ctx, func(ConfigurationEvent) {
				select {
				case look <- struct{}{}:
				default: // it will look anyway
				}
			})
			switch {
			case errors.Is(err, storage.ErrNotifierClosed):
				return err
			case err != nil && ctx.Err() == nil:
				s.o.Log.Warn("new identities are found late: changes of the database are not told of", zap.Duration("poll", s.o.Poll), zap.Error(err))
			}
		}
		s.handle(ctx, handled)
		select {
		case <-ctx.Done():
		case <-look:
		case <-tick.C:
		}
	}
	return context.Cause(ctx)
}

// handle hands over what was not yet.
func (s *Subscriber) handle(ctx context.Context, handled map[[3]string][sha256.Size]byte) {
	types := s.o.Types
	if len(types) == 0 {
		types = []string{""}
	}
	for _, kind := range types {
		all, err := storage.Collect(s.store.Configurations(ctx, kind)) // whole, so that no connection is held while it is handled
		if err != nil && ctx.Err() == nil {
			s.o.Log.Warn("looking for new identities failed", zap.Error(err))
		}
		for _, c := range all {
			key, content := [3]string{c.ID, c.Type, c.URL}, fingerprint(c)
			if old, ok := handled[key]; ok && old == content || ctx.Err() != nil {
				continue
			}
			if err := s.o.Handle(ctx, c); err != nil {
				if ctx.Err() == nil {
					s.o.Log.Warn("an identity could not be taken in", zap.String("id", c.ID), zap.String("type", c.Type), zap.Error(err))
				}
				continue
			}
			handled[key] = content
		}
	}
}

// fingerprint stands for the configuration's content.
func fingerprint(c token.IdentityConfiguration) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, part := range [][]byte{c.Config, c.Raw} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	h.Sum(sum[:0])
	return sum
}
