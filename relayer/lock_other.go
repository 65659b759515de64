//go:build !unix

package relayer

import (
	"errors"
	"os"
)

func lockFile(*os.File) error {
	return errors.New("the relayer's lock on a SQLite file needs a Unix system: use postgres")
}
