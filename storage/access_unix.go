//go:build unix

package storage

import (
	"os"
	"syscall"
)

// mayWrite returns why this process may not write a file or directory, nil where it may. It does not open the file: closing it again would
// give up the locks that other connections of this process have on it.
func mayWrite(path string) error {
	const writeOK = 2 // W_OK of access(2)
	if err := syscall.Access(path, writeOK); err != nil {
		return &os.PathError{Op: "writing", Path: path, Err: err}
	}
	return nil
}
