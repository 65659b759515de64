package main

import (
	"context"
	"os"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"dongate/config"
	"dongate/gateway"
	"dongate/internal/systemd"
)

// reloader reads the configuration file of a running gateway again. It may be asked
// from several sides at once.
type reloader struct {
	world   *world
	file    string
	log     *zap.Logger
	level   zap.AtomicLevel
	manager *manager
	server  func() *gateway.Server // not nil once anybody can ask

	mu sync.Mutex // held while reloading
}

// run checks the file as 'gateway check' does and puts in effect what can change
// while running: everything or, with a problem, nothing.
func (r *reloader) run() *gateway.Reloaded {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.manager.reloading()
	defer r.manager.ready()
	l, err := readConfig(r.world, r.file)
	if err == nil && l.problems != nil {
		return r.refused(l.problems.List, l.problems.More)
	}
	var out *gateway.Reloaded
	if err == nil {
		out, err = r.server().Reload(l.config)
	}
	if err != nil {
		return r.refused([]config.Problem{{Text: err.Error()}}, 0)
	}
	level, err := zapcore.ParseLevel(l.config.Log.Level)
	if err == nil && level < r.level.Level() {
		r.level.SetLevel(level)
	}
	r.log.Info("reloaded", zap.Strings("applied", out.Applied), zap.Strings("needsRestart", out.NeedsRestart))
	if err == nil {
		r.level.SetLevel(level)
	}
	return out
}

// refused is what a reload came to that changed nothing.
func (r *reloader) refused(problems []config.Problem, more int) *gateway.Reloaded {
	out := &gateway.Reloaded{Applied: []string{}, NeedsRestart: []string{}}
	var texts []string
	for _, p := range problems {
		out.Problems = append(out.Problems, gateway.ReloadProblem(p))
		texts = append(texts, p.String())
	}
	r.log.Error("reload refused, nothing was changed", zap.Strings("problems", texts), zap.Int("more", more))
	return out
}

// manager is the service manager, which is told what goes on. One that cannot be
// reached is noted in the log, and nothing else.
type manager struct {
	notifier systemd.Notifier
	log      *zap.Logger
	stop     context.CancelFunc
	ended    chan struct{} // closed when nothing more is told of the process being alive
}

func newManager(w *world, log *zap.Logger) *manager {
	ctx, cancel := context.WithCancel(context.Background())
	m := &manager{notifier: systemd.New(w.environ, os.Getpid()), log: log, stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(m.ended)
		m.notifier.Watch(ctx) // from the start to the end: both may take long
	}()
	return m
}

func (m *manager) ready()     { m.noted(m.notifier.Ready()) }
func (m *manager) reloading() { m.noted(m.notifier.Reloading()) }
func (m *manager) stopping()  { m.noted(m.notifier.Stopping()) }

func (m *manager) noted(err error) {
	if err != nil {
		m.log.Warn("the service manager was not told", zap.Error(err))
	}
}

func (m *manager) close() {
	m.stop()
	<-m.ended
}
