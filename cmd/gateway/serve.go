package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"dongate/auth/sqlclaims"
	"dongate/config"
	"dongate/gateway"
	"dongate/relayer"
)

func newServe(w *world) *cobra.Command {
	var (
		file  string
		ready bool
	)
	cmd := &cobra.Command{
		Use:   "serve --config FILE [--ready-without-nodes]",
		Short: "Run the gateway",
		Long: `Run the gateway until it is told to stop.

The log goes to standard error, as the configuration's log section says. Once all
listeners are open it has one entry with msg "listening" and the addresses in
use (user, node, admin, and relayer where that has its own), so that port 0 can
be used.

Signals:
  SIGTERM, SIGINT  drain: /readyz and /health say so at once; after drainDelayMs new
                   requests are refused with 503, open ones are finished for at most
                   shutdownTimeoutMs, nodes are told, exit 0
  a second one     end at once, exit 130
  SIGHUP           reload the configuration file, as 'gateway reload' does: what can
                   change while running takes effect, as a whole or not at all, and
                   the log entry "reloaded" names what needs a restart

Under systemd, Type=notify-reload and WatchdogSec= can be used.

Used tokens and request ids are kept in the database that storage names: by
default the file dongate.db in $STATE_DIRECTORY, or else beside the configuration
file. Its schema is brought up to date, unless storage.migrate is "manual".

With relayer.enabled it also is a relayer, whose requests are in the same
database: see docs/relayer.md. A SQLite file has one relayer; a second one does
not start.

A configuration with problems is refused as a whole: they are listed as
'gateway check' does, and the exit code is 3. A listener that cannot be opened is
exit code 5, as is a second relayer, a database exit code 6.`,
		Example: `  gateway serve --config gateway.json
  DONGATE_LOG_LEVEL=debug gateway serve --config gateway.json
  DONGATE_CONFIG=/etc/dongate/gateway.json gateway serve`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := loadConfig(w, cmd, file)
			if err != nil {
				return err
			}
			l.checkSecrets(w)
			if l.problems != nil {
				return l.complain(w)
			}
			return serve(cmd.Context(), w, l, ready)
		},
	}
	addConfigFlag(cmd, &file)
	cmd.Flags().BoolVar(&ready, "ready-without-nodes", false, "let /readyz answer 200 before a quorum of nodes is connected")
	return cmd
}

// serve runs the gateway until ctx ends, then drains it.
func serve(ctx context.Context, w *world, l *loaded, ready bool) (err error) {
	log, level, err := newAdjustableLogger(l.config.Log, w.stderr)
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // before the listeners open, so that it never kills
	defer signal.Stop(hangup)

	v := readVersion()
	log.Info("starting", zap.String("version", v.Version), zap.String("commit", v.Commit), zap.String("crypto", v.Crypto),
		zap.String("config", l.file), zap.String("gatewayId", l.config.ConnectionManager.AuthGatewayID))
	manager := newManager(w, log)
	defer manager.close()
	var srv *gateway.Server
	reload := &reloader{world: w, file: l.file, log: log, level: level, manager: manager, server: func() *gateway.Server { return srv }}
	o := gateway.Options{Config: l.config, Log: log, ReadyWithoutNodes: ready, Version: v.Version, Metrics: prometheus.NewRegistry(), Reload: reload.run}
	var rel *relayerRun // nil where it is off
	closing := func(name string, c io.Closer) {
		if !errors.Is(err, relayer.ErrStuck) { // else workers may hold it for ever
			closeLogged(log, name, c)
		}
	}
	if l.config.Storage.Driver != config.DriverMemory {
		db, err := openStore(ctx, w, l, log)
		if err != nil {
			return err
		}
		defer closing("database", db)
		claims, err := sqlclaims.Open(ctx, db, sqlclaims.Options{Log: log, AnswerPeriod: longestReservation(l.config)})
		if err != nil {
			return storageFailure(err, l)
		}
		defer closing("claims", claims)
		o.Claims = claims
		if l.config.Relayer.Enabled {
			rel, err = newRelayerRun(ctx, w, l, db, log, o.Metrics, func() bool { return srv.Draining() }, func() *config.Config { return srv.Config() })
			if err != nil {
				return err
			}
			o.Relayer = rel.served()
		}
	}
	srv, err = gateway.New(o)
	if err == nil {
		if err = srv.Start(); err != nil {
			err = fail(exitStart, "cannot start: %w", err).withHint("%s", startHint(err, l.file))
		}
	}
	if err != nil {
		return errors.Join(err, rel.halt())
	}
	rel.start()
	manager.ready()
	if err := await(ctx, hangup, reload, rel); err != nil {
		return err // at once: what it left undone, the next dispatcher does
	}
	log.Info("told to stop", zap.NamedError("cause", context.Cause(ctx)))
	manager.stopping()
	srv.Leave()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.config.ShutdownTimeout)
	defer cancel()
	halted := make(chan error, 1)
	go func() { // at the same time: another replica need not wait for our open requests
		err := rel.halt()
		if err != nil {
			cancel()
		}
		halted <- err
	}()
	if err := srv.Shutdown(drain); err != nil {
		// Every open request has been answered or given up by now; a client that
		// does not read its answer is no reason for a failure.
		log.Warn("some connections were cut off", zap.Error(err))
	}
	if err := <-halted; err != nil {
		return relayerEnded(err)
	}
	return nil
}

// await returns nil when ctx ends, or why the process has to.
func await(ctx context.Context, hangup <-chan os.Signal, reload *reloader, rel *relayerRun) error {
	for {
		select {
		case <-hangup:
			reload.run()
		case <-rel.ends():
			return relayerEnded(rel.err)
		case <-ctx.Done():
			return nil
		}
	}
}

// closeLogged closes c when the gateway has stopped.
func closeLogged(log *zap.Logger, name string, c io.Closer) {
	if err := c.Close(); err != nil {
		log.Error("not closed in order", zap.String("what", name), zap.Error(err))
	}
}

// longestReservation is how long a closed request id is kept at most.
func longestReservation(c *config.Config) time.Duration {
	var longest time.Duration
	for _, s := range c.Services {
		longest = max(longest, s.Handler.RequestIDPeriod())
	}
	return longest
}

// startHint says what to do about a listener that cannot be opened.
func startHint(err error, file string) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "Another process has this port: end it, or set another port in " + file + "."
	case errors.Is(err, syscall.EACCES):
		return "Ports below 1024 need a privilege: set another port in " + file + ", or grant CAP_NET_BIND_SERVICE."
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "This machine does not have that address: set another host in " + file + "."
	}
	return ""
}
