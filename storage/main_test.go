package storage_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dongate/storage"
)

// This program, started with these, is one of several processes that use a database at once.
const (
	childTask   = "DONGATE_STORAGE_CHILD"
	childDriver = "DONGATE_STORAGE_CHILD_DRIVER"
	childDSN    = "DONGATE_STORAGE_CHILD_DSN"
)

func TestMain(m *testing.M) {
	task := map[string]func(context.Context, storage.Config) error{
		"migrate": childMigrate, "write": childWrite, "umask": childUmask, "nobody": childNobody,
	}[os.Getenv(childTask)]
	if task == nil {
		goleak.VerifyTestMain(m)
		return
	}
	if err := task(context.Background(), storage.Config{Driver: os.Getenv(childDriver), DSN: os.Getenv(childDSN)}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// startChildren starts processes that run one of the tasks of TestMain. What follows awaitOthers in it begins when all have got there.
func startChildren(t testing.TB, n int, task string, config storage.Config) []*exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	readyRead, readyWrite, err := os.Pipe()
	require.NoError(t, err)
	defer readyRead.Close()
	var children []*exec.Cmd
	for range n {
		c := exec.CommandContext(t.Context(), self)
		c.Env = append(os.Environ(), childTask+"="+task, childDriver+"="+config.Driver, childDSN+"="+config.DSN)
		output := new(bytes.Buffer)
		c.Stdout, c.Stderr = output, output
		c.ExtraFiles = []*os.File{readyWrite}
		start, err := c.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		defer start.Close()
		children = append(children, c)
	}
	require.NoError(t, readyWrite.Close())
	_, err = io.Copy(io.Discard, readyRead) // ends when none has the other end any more
	require.NoError(t, err)
	return children
}

// awaitOthers returns when all processes that startChildren started have called it or ended.
func awaitOthers() {
	_ = os.NewFile(3, "ready").Close()
	_, _ = io.Copy(io.Discard, os.Stdin)
}
