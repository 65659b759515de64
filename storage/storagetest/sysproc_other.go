//go:build !linux

package storagetest

import "syscall"

// dieWithParent has a child end at once when its parent ends, where the system can.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
