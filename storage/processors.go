package storage

import (
	"os"
	"runtime"
	"sync"
)

var makeRoom sync.Once

// MakeRoom lets one goroutine more run at a time than Go would, for a program that writes much to SQLite: its writer waits for the disk in a system call
// most of the time, and Go's scheduler notices only after a while that the processor under it is free. The environment's GOMAXPROCS is left as it is. It
// works once; programs call it, libraries do not.
func MakeRoom() {
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	makeRoom.Do(func() { runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1) })
}
