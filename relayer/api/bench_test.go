package api

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"dongate/relayer/fhevm"
	"dongate/relayer/store"
	"dongate/storage"
	"dongate/storage/storagetest"
)

// benchFixture is a handler over a database that flushes what is committed, as in operation, and with the real clock.
func benchFixture(b *testing.B, driver string) *fixture {
	b.Helper()
	config := storage.Config{Driver: driver, MaxConns: 8}
	if driver == storage.DriverPostgres {
		config.DSN = storagetest.NewDurableCluster(b).DSN()
	} else {
		config = storagetest.Config(b, driver)
	}
	f := newFixture(b, storagetest.Open(b, config), nil)
	f.store = store.New(f.db, store.Options{})
	f.with(b, func(o *Options) {
		o.Store, o.Now = f.store, time.Now
		for k := range o.Limits {
			o.Limits[k] = Queue{TPS: 20, Capacity: store.MaxCount}
		}
	})
	return f
}

func timed(b *testing.B, f func() error) time.Duration {
	start := time.Now()
	err := f()
	took := time.Since(start)
	require.NoError(b, err)
	return took
}

// quantile sorts v.
func quantile[T cmp.Ordered](v []T, q float64) T {
	slices.Sort(v)
	return v[min(int(float64(len(v))*q), len(v)-1)]
}

const benchEndpoint, benchTable = fhevm.EndpointUserDecrypt, "user_decrypt_req"

func benchRequest(b *testing.B, n int) fhevm.Request {
	r, err := fhevm.Decode(benchEndpoint, []byte(bodyOf(benchEndpoint, n)), fhevm.Options{Now: time.Now()})
	require.NoError(b, err)
	return r
}

// fill stores rows of which the last ones wait and the others are completed, and returns the job ids of those that wait.
func (f *fixture) fill(b *testing.B, rows, waiting int) (ids []string) {
	b.Helper()
	request, err := fhevm.EncodeStored(benchRequest(b, 1))
	require.NoError(b, err)
	insert := func(from, to int) {
		const batch = 500
		for ; from < to; from += batch {
			args := []any{string(request), storage.NewTime(time.Now())}
			var values []string
			for n := from; n < min(from+batch, to); n++ {
				id, hash := uuid.New(), hashOf("filled", n)
				ids = append(ids, id.String())
				args = append(args, id.String(), hash[:])
				values = append(values, fmt.Sprintf("($%d, $%d, $1, $2, $2, $2, 'user_decrypt')", len(args)-1, len(args)))
			}
			_, err := f.db.Write().Exec("INSERT INTO "+benchTable+" (ext_job_id, int_job_id, req, state_since, created_at, updated_at, req_type) VALUES "+
				strings.Join(values, ", "), args...)
			require.NoError(b, err)
		}
	}
	insert(0, rows-waiting)
	for _, state := range []fhevm.State{fhevm.StateProcessing, fhevm.StateTxInFlight, fhevm.StateReceiptReceived, fhevm.StateCompleted} {
		_, err := f.db.Write().Exec("UPDATE "+benchTable+" SET gw_reference_id = int_job_id, req_status = $1", string(state))
		require.NoError(b, err)
	}
	ids = nil
	insert(rows-waiting, rows)
	if f.db.Backend() == storage.Postgres {
		_, err = f.db.Write().Exec("VACUUM ANALYZE " + benchTable) // as autovacuum would have
		require.NoError(b, err)
	}
	return ids
}

// BenchmarkLoad is the latency that a client sees with 100 000 rows and a full queue, the most that may wait, over that with an almost empty
// database: GET of a job that waits and POST of a new one, 200 a second over 8 connections, in turn at either. The ratios are medians of blocks.
func BenchmarkLoad(b *testing.B) {
	const rows, blocks, calls, pause = 100_000, 5, 600, 5 * time.Millisecond
	for _, driver := range []string{storage.DriverSQLite, storage.DriverPostgres} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			b.Run(driver+"/"+method, func(b *testing.B) {
				waiting := store.MaxCount
				if method == http.MethodPost {
					waiting -= blocks*calls + 10 // those that are posted fill it
				}
				var call [2]func(n int) error
				for i, size := range [][2]int{{1, 1}, {rows, waiting}} {
					f := benchFixture(b, driver)
					ids := f.fill(b, size[0], size[1])
					server := httptest.NewServer(f)
					b.Cleanup(server.Close)
					var clients [8]http.Client
					for c := range clients {
						transport := &http.Transport{}
						b.Cleanup(transport.CloseIdleConnections)
						clients[c].Transport = transport
					}
					call[i] = func(n int) error {
						path, body := string(benchEndpoint), bodyOf(benchEndpoint, n)
						if method == http.MethodGet {
							path, body = path+"/"+ids[rand.IntN(len(ids))], ""
						}
						r, err := http.NewRequestWithContext(b.Context(), method, server.URL+path, strings.NewReader(body))
						if err != nil {
							return err
						}
						a, err := clients[n%len(clients)].Do(r)
						if err != nil {
							return err
						}
						defer a.Body.Close()
						if text, err := io.ReadAll(a.Body); err != nil || a.StatusCode != http.StatusAccepted {
							return fmt.Errorf("%d %s: %w", a.StatusCode, text, err)
						}
						return nil
					}
					for n := range clients {
						require.NoError(b, call[i](n)) // connects
					}
				}
				ticks := time.NewTicker(pause)
				defer ticks.Stop()
				var at [2][]time.Duration
				var p99, p50 []float64
				for block := range blocks {
					var took [2][]time.Duration
					for n := range calls {
						<-ticks.C
						for _, i := range [2]int{n % 2, 1 - n%2} {
							took[i] = append(took[i], timed(b, func() error { return call[i](block*calls + n + 10) }))
						}
					}
					for i := range at {
						at[i] = append(at[i], quantile(took[i], .99))
					}
					p99 = append(p99, float64(at[1][block])/float64(at[0][block]))
					p50 = append(p50, float64(quantile(took[1], .5))/float64(quantile(took[0], .5)))
				}
				b.ReportMetric(float64(quantile(at[0], .5).Microseconds()), "µs-p99-empty")
				b.ReportMetric(float64(quantile(at[1], .5).Microseconds()), "µs-p99-full")
				b.ReportMetric(quantile(p99, .5), "x-of-empty-p99")
				b.ReportMetric(quantile(p50, .5), "x-of-empty-p50")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// plainTable makes a table that takes the rows of the requests, with their columns and types and checks, but with no key, index or trigger save the
// primary key.
func plainTable(b *testing.B, db *storage.DB) {
	b.Helper()
	make := []string{"CREATE TABLE plain (LIKE " + benchTable + " INCLUDING DEFAULTS INCLUDING CONSTRAINTS)", "ALTER TABLE plain ADD PRIMARY KEY (id)"}
	if db.Backend() == storage.SQLite {
		var text string
		require.NoError(b, db.Read().QueryRow("SELECT sql FROM sqlite_schema WHERE name = $1", benchTable).Scan(&text))
		make = []string{strings.NewReplacer(benchTable, "plain", " UNIQUE", "").Replace(text)}
	}
	for _, statement := range make {
		_, err := db.Write().Exec(statement)
		require.NoError(b, err)
	}
}

// BenchmarkPost is a request's way to a durable row, from the HTTP request and from the store's Insert on, over two bare inserts of the same
// bytes by the driver: into the table of the requests, and into one with the same columns that has neither triggers nor indexes beside its primary
// key. The four take turns; medians. A ratio is how many times as fast, 1 at most where nothing is measured wrongly.
func BenchmarkPost(b *testing.B) {
	const turns = 1000
	for _, driver := range []string{storage.DriverSQLite, storage.DriverPostgres} {
		b.Run(driver, func(b *testing.B) {
			f, ctx := benchFixture(b, driver), context.Background()
			plainTable(b, f.db)
			bare := func(table string, n int) func() error {
				id, hash, now := uuid.NewString(), hashOf(table, n), storage.NewTime(time.Now())
				stored, err := fhevm.EncodeStored(benchRequest(b, n))
				require.NoError(b, err)
				return func() error {
					_, err := f.db.Write().ExecContext(ctx, "INSERT INTO "+table+" (ext_job_id, int_job_id, req, req_status, state_since, created_at, updated_at, req_type) "+
						"VALUES ($1, $2, $3, 'queued', $4, $5, $6, $7)", id, hash[:], string(stored), now, now, now, "user_decrypt")
					return err
				}
			}
			ways := []func(n int) func() error{
				func(n int) func() error {
					r := httptest.NewRequestWithContext(ctx, http.MethodPost, string(benchEndpoint), strings.NewReader(bodyOf(benchEndpoint, n)))
					w := httptest.NewRecorder()
					return func() error {
						f.ServeHTTP(w, r)
						if w.Code != http.StatusAccepted {
							return fmt.Errorf("%d %s", w.Code, w.Body)
						}
						return nil
					}
				},
				func(n int) func() error {
					stored, err := fhevm.EncodeStored(benchRequest(b, n))
					require.NoError(b, err)
					j := store.NewJob{Kind: fhevm.KindUserDecrypt, ExtJobID: uuid.NewString(), IntJobID: hashOf("insert", n), Request: stored, ReqType: "user_decrypt"}
					return func() error { _, _, err := f.store.Insert(ctx, j); return err }
				},
				func(n int) func() error { return bare(benchTable, n) },
				func(n int) func() error { return bare("plain", n) },
			}
			took := make([][]time.Duration, len(ways))
			for n := range turns {
				for i := range ways {
					i = (i + n) % len(ways)
					took[i] = append(took[i], timed(b, ways[i](n+1)))
				}
			}
			var medians [4]float64
			for i, name := range []string{"µs/POST", "µs/Insert", "µs/same-table", "µs/plain-table"} {
				medians[i] = float64(quantile(took[i], .5).Microseconds())
				b.ReportMetric(medians[i], name)
			}
			b.ReportMetric(medians[2]/medians[0], "POST-x-of-same-table")
			b.ReportMetric(medians[3]/medians[0], "POST-x-of-plain")
			b.ReportMetric(medians[2]/medians[1], "Insert-x-of-same-table")
			b.ReportMetric(medians[3]/medians[1], "Insert-x-of-plain")
			b.ReportMetric(0, "ns/op")
		})
	}
}
