package store

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/relayer/fhevm"
	"dongate/storage"
	"dongate/storage/storagetest"
)

var durable = []string{storage.DriverSQLite, storage.DriverPostgres}

// benchStore is on a database that flushes what is committed, as in operation.
func benchStore(b *testing.B, driver string) *Store {
	b.Helper()
	config := storage.Config{Driver: driver, MaxConns: 8}
	if driver == storage.DriverPostgres {
		config.DSN = storagetest.NewDurableCluster(b).DSN()
	} else {
		config = storagetest.Config(b, driver)
	}
	return fresh(b, storagetest.Open(b, config), Options{})
}

func timed(b *testing.B, f func() error) time.Duration {
	start := time.Now()
	err := f()
	d := time.Since(start)
	require.NoError(b, err)
	return d
}

func median(v []time.Duration) time.Duration {
	slices.Sort(v)
	return v[len(v)/2]
}

// fill inserts rows in one state and of one epoch, without the store.
func fill(b *testing.B, s *Store, k Kind, rows int, epoch int64) {
	b.Helper()
	now, column, value := storage.NewTime(time.Now()), "", ""
	if k == fhevm.KindUserDecrypt {
		column, value = ", req_type", ", 'unified'"
	}
	id, hash, series := "gen_random_uuid()", "sha256(n::text::bytea)", "SELECT n FROM generate_series(1, $5::bigint) AS n"
	if !s.postgres() {
		id, hash = "lower(hex(randomblob(16)))", "randomblob(32)"
		series = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < $5) SELECT n FROM c"
	}
	_, err := s.db.Write().Exec("INSERT INTO "+table(k)+" (ext_job_id, int_job_id, req, owner_epoch, state_since, created_at, updated_at"+column+
		") SELECT "+id+", "+hash+", '{}', $1, $2, $3, $4"+value+" FROM ("+series+") AS numbers", epoch, now, now, now, rows)
	require.NoError(b, err)
	if s.postgres() {
		_, err = s.db.Write().Exec("ANALYZE " + table(k))
		require.NoError(b, err)
	}
}

// BenchmarkShareCompletion is the last share of a request, with 200 and with 100 000 shares and requests in the tables.
func BenchmarkShareCompletion(b *testing.B) {
	const threshold = 9
	for _, driver := range durable {
		b.Run(driver, func(b *testing.B) {
			var medians []time.Duration
			for _, size := range []int{200, 100_000} {
				s, ctx := benchStore(b, driver), context.Background()
				fill(b, s, fhevm.KindUserDecrypt, size, 0)
				_, err := s.db.Write().Exec("UPDATE user_decrypt_req SET gw_reference_id = int_job_id")
				require.NoError(b, err)
				_, err = s.db.Write().Exec("INSERT INTO user_decrypt_share (req_id, gw_reference_id, share_index, share, kms_signature, extra_data, block_hash, created_at, updated_at) " +
					"SELECT id, int_job_id, 1, 'aa', 'bb', '0x00', int_job_id, created_at, created_at FROM user_decrypt_req")
				require.NoError(b, err)
				if s.postgres() {
					_, err = s.db.Write().Exec("ANALYZE")
					require.NoError(b, err)
				}
				e := epoch(b, s)
				_, err = s.db.Write().Exec("UPDATE user_decrypt_req SET owner_epoch = $1", e)
				require.NoError(b, err)
				var last []time.Duration
				for n := range min(max(b.N, 60), 400) {
					walked(b, s, fhevm.KindUserDecrypt, n, e, fhevm.StateReceiptReceived)
					for index := range threshold {
						d := timed(b, func() error { _, err := s.AddShare(ctx, share(n, index), Event{}, threshold); return err })
						if index == threshold-1 {
							last = append(last, d)
						}
					}
				}
				medians = append(medians, median(last))
				b.ReportMetric(float64(median(last).Microseconds()), fmt.Sprintf("µs@%d", size))
			}
			b.ReportMetric(float64(medians[1])/float64(medians[0]), "x-of-small")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkClaim is a claim of 100 of 100 000 live rows, beside a bare SELECT of 100 rows.
func BenchmarkClaim(b *testing.B) {
	const rows, batch = 100_000, 100
	for _, driver := range durable {
		b.Run(driver, func(b *testing.B) {
			s, ctx := benchStore(b, driver), context.Background()
			fill(b, s, fhevm.KindUserDecrypt, rows, 0)
			e := epoch(b, s)
			var claims, selects []time.Duration
			for range min(max(b.N, 50), rows/batch) {
				selects = append(selects, timed(b, func() error {
					_, err := s.jobs(ctx, s.db.Read(), fhevm.KindUserDecrypt, "id > $1 ORDER BY id LIMIT $2", len(selects)*batch, batch)
					return err
				}))
				claims = append(claims, timed(b, func() error {
					jobs, err := s.Claim(ctx, fhevm.KindUserDecrypt, e, batch)
					require.Len(b, jobs, batch)
					return err
				}))
			}
			b.ReportMetric(float64(median(claims).Microseconds())/1000, "ms/claim")
			b.ReportMetric(float64(slices.Max(claims).Microseconds())/1000, "ms/claim-max")
			b.ReportMetric(float64(median(selects).Microseconds())/1000, "ms/select")
			b.ReportMetric(float64(median(claims))/float64(median(selects)), "x-of-select")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkQueue is a look at the waiting jobs, of which there are as many as are counted, among 100 000 rows, over the driver's way to have the
// same numbers: a row for each.
func BenchmarkQueue(b *testing.B) {
	for _, driver := range durable {
		b.Run(driver, func(b *testing.B) {
			s, ctx := benchStore(b, driver), context.Background()
			fill(b, s, fhevm.KindUserDecrypt, 100_000, 0)
			var looks, rows []time.Duration
			for range max(b.N, 30) {
				looks = append(looks, timed(b, func() error {
					q, err := s.Queue(ctx, fhevm.KindUserDecrypt)
					require.Len(b, q.Queued, MaxCount)
					return err
				}))
				rows = append(rows, timed(b, func() error {
					ids, err := storage.Collect(storage.Query(ctx, s.db.Read(), storage.Column[int64],
						"SELECT id FROM user_decrypt_req WHERE "+isState(fhevm.StateQueued, "'queued'")+" ORDER BY id LIMIT $1", MaxCount))
					require.Len(b, ids, MaxCount)
					return err
				}))
			}
			b.ReportMetric(float64(median(looks).Microseconds())/1000, "ms/look")
			b.ReportMetric(float64(median(rows).Microseconds())/1000, "ms/rows")
			b.ReportMetric(float64(median(looks))/float64(median(rows)), "x-of-rows")
			b.ReportMetric(0, "ns/op")
		})
	}
}
