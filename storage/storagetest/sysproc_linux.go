package storagetest

import "syscall"

// dieWithParent has a child end at once when its parent ends, however that happens.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGQUIT}
}
