package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrDSN: the connection string of PostgreSQL cannot be used, whether a server is there or not.
var ErrDSN = errors.New("the connection string cannot be used")

// CheckPostgresDSN returns an error of the class ErrDSN if dsn is no connection string that [Open] could use. It connects to nothing, but
// reads the files that dsn names, and the environment variables and files that PostgreSQL's programs read too (PGHOST, ~/.pgpass). The error
// repeats nothing of dsn save the path of a file that cannot be read: what cannot be taken apart may have a password anywhere.
func CheckPostgresDSN(dsn string) error {
	_, err := parsePostgres(dsn)
	return err
}

// parsePostgres is pgx.ParseConfig with errors that may be shown: pgx hides passwords as well as it can, which is not always.
func parsePostgres(dsn string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(dsn)
	if err == nil {
		return config, nil
	}
	why := "one of its settings has a value that is not known"
	for _, e := range dsnErrors {
		if strings.Contains(err.Error(), "`: "+e.pgx) {
			why = e.text
			break
		}
	}
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		why += fmt.Sprintf(" (%q: %v)", file.Path, file.Err)
	}
	return nil, fmt.Errorf("%w: %s", ErrDSN, why)
}

// dsnErrors explains pgx's reasons in words that hold nothing of the string.
var dsnErrors = []struct{ pgx, text string }{
	{"failed to parse as URL", "it starts as a URL and is none; in a user, password or database name write @ as %40, / as %2F, : as %3A, % as %25"},
	{"failed to parse as keyword/value", "it is neither a URL (postgres://user:password@host/database) nor keyword=value pairs (host=… user=… dbname=…)"},
	{"invalid port", "a port is no number from 1 to 65535; if a password has an @, / or : in it, write %40, %2F or %3A"},
	{"could not match", "there are not as many ports as hosts"},
	{"failed to configure TLS", "its sslmode is not known, or its certificates cannot be used"},
	{"failed to read service", "its service cannot be read"},
	{"invalid connect_timeout", "its connect_timeout is no number of seconds"},
	{"unknown target_session_attrs", "its target_session_attrs is not known"},
}
