package storage_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/storage"
)

func TestMakeRoom(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	t.Setenv("GOMAXPROCS", "2")
	storage.MakeRoom()
	require.Equal(t, before, runtime.GOMAXPROCS(0), "the operator decides")
	t.Setenv("GOMAXPROCS", "")
	storage.MakeRoom()
	storage.MakeRoom()
	require.Equal(t, before+1, runtime.GOMAXPROCS(0))
}
