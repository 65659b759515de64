// Package systemd tells the service manager what the process does, as sd_notify(3) describes: when it is ready, reloads, stops, and that it lives.
package systemd

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// writeTimeout bounds how long a message may wait for the manager.
const writeTimeout = time.Second

// Notifier sends messages to the service manager. The zero value sends none. Its methods may be called at the same time.
type Notifier struct {
	socket   string
	watchdog time.Duration // how often the manager wants to hear something; 0: it does not
}

// New returns a Notifier for the manager that environ ("NAME=text") names, if it names one. pid is this process.
func New(environ []string, pid int) Notifier {
	values := map[string]string{}
	for _, v := range environ {
		if name, text, ok := strings.Cut(v, "="); ok {
			values[name] = text
		}
	}
	n := Notifier{socket: values["NOTIFY_SOCKET"]}
	owner := values["WATCHDOG_PID"]
	if usec, err := strconv.ParseInt(values["WATCHDOG_USEC"], 10, 64); err == nil && usec > 0 && (owner == "" || owner == strconv.Itoa(pid)) {
		n.watchdog = time.Duration(usec) * time.Microsecond
	}
	return n
}

// Ready says that the process is ready, for the first time or after a reload.
func (n Notifier) Ready() error { return n.send("READY=1") }

// Reloading says that the process begins to reload; Ready says that it has ended.
func (n Notifier) Reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("the clock: %w", err)
	}
	return n.send(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000))
}

// Stopping says that the process begins to stop.
func (n Notifier) Stopping() error { return n.send("STOPPING=1") }

// Watch says twice in each of the manager's intervals that the process lives, until ctx ends. Where the manager does not ask for it, it returns at once.
func (n Notifier) Watch(ctx context.Context) {
	if n.watchdog <= 1 || n.socket == "" {
		return
	}
	ticker := time.NewTicker(n.watchdog / 2)
	defer ticker.Stop()
	for {
		_ = n.send("WATCHDOG=1") // the next one may get through
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (n Notifier) send(state string) error {
	if n.socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"}) // an @ in front is the abstract name space
	if err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	return nil
}
