package storage

import (
	"context"
	"database/sql"
	"iter"
)

// Querier runs a query: *sql.DB, *sql.Conn and *sql.Tx do.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Query runs a query when the loop begins and yields what scan makes of each row, until the rows or the loop end. A failure, be it at the
// beginning, of scan or between two rows, is yielded as the last thing, with the zero value, so that rows that were cut short
// cannot be taken for all there are. The connection is in use until the loop ends: inside a transaction nothing else can run on it before.
func Query[T any](ctx context.Context, q Querier, scan func(*sql.Rows) (T, error), query string, args ...any) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		rows, err := q.QueryContext(ctx, query, args...)
		if err != nil {
			yield(*new(T), err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			v, err := scan(rows)
			if err != nil {
				yield(*new(T), err)
				return
			}
			if !yield(v, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(*new(T), err)
		}
	}
}

// Column is a scan function of [Query] for rows of one column.
func Column[T any](rows *sql.Rows) (v T, err error) {
	err = rows.Scan(&v)
	return v, err
}

// Collect returns everything that a loop over seq gets, up to the first error, and that error.
func Collect[T any](seq iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for v, err := range seq {
		if err != nil {
			return all, err
		}
		all = append(all, v)
	}
	return all, nil
}
