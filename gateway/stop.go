package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Run starts the server, serves until ctx ends, and drains.
func (srv *Server) Run(ctx context.Context) error {
	if err := srv.Start(); err != nil {
		return err
	}
	<-ctx.Done()
	srv.Leave()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), srv.config.ShutdownTimeout)
	defer cancel()
	return srv.Shutdown(drain)
}

// answerGrace is what is left for writing answers once open requests were given
// up at the deadline, and for requests of which a part has come.
const answerGrace = 2 * time.Second

// Leave is the first step of a stop: /readyz and /health refuse from now on, while
// requests are still served for as long as drainDelayMs says, so that a load
// balancer has time to notice. HTTP/1.1 connections end with their next answer.
func (srv *Server) Leave() {
	srv.leave()
	if wait := srv.config.DrainDelay; wait > 0 {
		srv.log.Info("leaving", zap.Duration("refusingIn", wait))
		time.Sleep(wait)
	}
}

// leave turns readiness off, and ends when no reload is under way any more.
func (srv *Server) leave() {
	srv.reloading.Lock()
	defer srv.reloading.Unlock()
	srv.leaving.Store(true)
}

// Shutdown drains: new requests get 503 `draining` while open ones finish; at
// ctx's end those left are answered `draining`, saying that they may have run.
// Then the listeners close, and every connection that has no request; one of whose
// request a part has come gets its answer first. Sessions are then closed with
// 1001. It returns when every goroutine of the server has ended.
func (srv *Server) Shutdown(ctx context.Context) error {
	srv.log.Info("draining", zap.Int("open", srv.openRequests()))
	srv.leave()
	srv.draining.Store(true)
	srv.clients.await(ctx.Done())
	srv.killOnce.Do(func() { close(srv.killed) })
	errs := []error{srv.closeListeners(context.WithoutCancel(ctx))}
	srv.nodes.close()
	srv.current().egress.Close()
	for _, svc := range srv.services {
		svc.actions.stop() // no session is left that could be answered, or could ask
	}
	if hs := srv.servers[AdminListener]; hs != nil {
		errs = append(errs, hs.Close())
	}
	if srv.stop != nil {
		srv.stop()
	}
	srv.running.Wait()
	srv.log.Info("stopped")
	return errors.Join(errs...)
}

// closeListeners closes all listeners but the operator's, with their connections,
// at the same time: none has less of the grace for another's sake.
func (srv *Server) closeListeners(ctx context.Context) error {
	grace, cancel := context.WithTimeout(ctx, answerGrace)
	defer cancel()
	names := []string{UserListener, RelayerListener, NodeListener}
	errs := make([]error, len(names))
	var closing sync.WaitGroup
	for i, name := range names {
		hs := srv.servers[name]
		if hs == nil {
			continue
		}
		closing.Go(func() {
			srv.listeners[name].drain(grace)
			if hs.Shutdown(grace) != nil { // connections that do not read their answer, or go on sending a request
				errs[i] = hs.Close()
			}
		})
	}
	closing.Wait()
	return errors.Join(errs...)
}

func (srv *Server) openRequests() int {
	n := 0
	for _, svc := range srv.services {
		n += svc.flights.len()
	}
	return n
}
