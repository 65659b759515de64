package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/token"
	"dongate/token/identitydb"
	"dongate/token/keystore"
	"dongate/token/walletdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	prefix     = "n__c__s__"
	passphrase = "correct horse battery staple"
)

var (
	made  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cheap = Options{Now: func() time.Time { return made }, WorkFactor: 1}
)

// stores are all stores on one database, with a key of their own.
func stores(t testing.TB, db *storage.DB) Stores {
	require.NoError(t, db.Migrate(t.Context(), token.Tables(prefix)))
	key, err := keystore.NewKey()
	require.NoError(t, err)
	sealing, err := keystore.LoadSealing(keystore.SealingOptions{Env: "KEY", LookupEnv: func(string) (string, bool) { return key, true }})
	require.NoError(t, err)
	return Stores{prefix, db, db, db, db, sealing}
}

func empty(t testing.TB, driver string) Stores {
	return stores(t, storagetest.Open(t, storagetest.Config(t, driver)))
}

func mustExec(t testing.TB, db *storage.DB, statement string, args ...any) {
	t.Helper()
	_, err := db.Write().ExecContext(t.Context(), statement, args...)
	require.NoError(t, err)
}

// request stores a request as packages ttxdb and auditdb do.
func request(t testing.TB, db *storage.DB, table, txID string, status token.TxStatus, metadata string) {
	t.Helper()
	mustExec(t, db, "INSERT INTO "+prefix+table+" (tx_id, request, status, status_message, application_metadata, public_metadata, pp_hash, stored_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
		txID, []byte("request of "+txID), int(status), "message", metadata, `{"p":"cA=="}`, []byte{1, 2}, storage.NewTime(made))
}

// populate stores something of everything, and every value that could get lost on the way: NULL, empty, zero bytes, other alphabets.
func populate(t testing.TB, s Stores) {
	ctx := t.Context()
	identities, wallets := identitydb.New(s.Identities, prefix), walletdb.New(s.Identities, prefix, walletdb.Options{Now: func() time.Time { return made }})
	keys, err := keystore.New(s.Keys, prefix, keystore.Options{Sealing: s.Sealing})
	require.NoError(t, err)
	for i, c := range []token.IdentityConfiguration{
		{ID: "id", Type: "type", URL: "url", Config: []byte{0, 255}, Raw: []byte("raw")}, {ID: "Ωμέγα \"quoted\" <&>\u2028", Type: "", URL: "", Config: []byte{}},
	} {
		conf, err := identities.AddConfiguration(ctx, c)
		require.NoError(t, err)
		for j := range 3 {
			id := token.Identity(fmt.Sprintf("identity %d %d\x00", i, j))
			require.NoError(t, identities.RegisterIdentityDescriptor(ctx, &identitydb.Descriptor{Identity: id, AuditInfo: []byte{byte(j)}, SignerInfo: []byte("signer")}, nil))
			require.NoError(t, wallets.StoreIdentity(ctx, walletdb.Binding{Identity: id, WalletID: "alice", Role: token.Role(j), EnrollmentID: "eid", Meta: [][]byte{nil, {}, {0}}[j], ConfigID: conf}))
			require.NoError(t, keys.Put(ctx, fmt.Sprintf("ski%d%d", i, j), []byte("secret key "+string(id))))
		}
	}
	require.NoError(t, identities.StoreIdentityData(ctx, token.Identity("with metadata"), identitydb.Data{TokenMetadata: []byte{}, TokenMetadataAuditInfo: []byte("a")}))
	require.NoError(t, identities.StoreSignerInfo(ctx, token.Identity("without info"), nil))
	for _, table := range []string{"requests", "aud_requests"} {
		request(t, s.Transactions, table, "tx1", token.Pending, `{"k": "dg==", "a": "bnVsbA=="}`)
		request(t, s.Transactions, table, "tx2", token.Confirmed, `{}`)
		request(t, s.Transactions, table, "tx3", token.Orphan, `{"\u00e9<": ""}`)
	}
	for _, c := range []io.Closer{identities, wallets, keys} {
		require.NoError(t, c.Close())
	}
}

// dump returns all rows as a backup spells them, in order.
func dump(t testing.TB, s Stores) []string {
	var b bytes.Buffer
	_, err := Write(t.Context(), &b, passphrase, s, cheap)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(plain(t, b.Bytes())), "\n")
	slices.Sort(lines[1 : len(lines)-1])
	return lines
}

func plain(t testing.TB, sealed []byte) string {
	identity, err := newPassphrase(passphrase)
	require.NoError(t, err)
	r, err := age.Decrypt(bytes.NewReader(sealed), identity)
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(text)
}

// sealed is the reverse of plain.
func sealed(t testing.TB, text string) []byte {
	recipient, err := age.NewScryptRecipient(passphrase)
	require.NoError(t, err)
	recipient.SetWorkFactor(1)
	var b bytes.Buffer
	w, err := age.Encrypt(&b, recipient)
	require.NoError(t, err)
	_, err = io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func backup(t testing.TB, s Stores) []byte {
	var b bytes.Buffer
	summary, err := Write(t.Context(), &b, passphrase, s, cheap)
	require.NoError(t, err)
	require.Equal(t, prefix, summary.Prefix)
	require.Equal(t, made, summary.Created)
	return b.Bytes()
}

// Everything comes back, on each backend from each, with another key of the keystore.
func TestRestoreAcrossBackends(t *testing.T) {
	t.Parallel()
	for _, from := range storagetest.Drivers {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			source := empty(t, from)
			populate(t, source)
			want, b := dump(t, source), backup(t, source)
			require.Len(t, want, 2+2+6+1+6+1+6+6+3+3)
			for _, secret := range []string{"secret key", "alice", "signer"} {
				require.NotContains(t, string(b), secret)
			}
			verified, err := Verify(bytes.NewReader(b), passphrase)
			require.NoError(t, err)
			require.EqualValues(t, len(want)-2, verified.Rows())
			for _, to := range storagetest.Drivers {
				target := empty(t, to)
				for i := range 2 { // repeated
					summary, err := Restore(t.Context(), bytes.NewReader(b), passphrase, target)
					require.NoError(t, err)
					require.Equal(t, verified.Rows(), summary.Rows())
					for _, c := range summary.Tables {
						require.Equal(t, c.Rows*int64(1-i), c.Inserted)
						require.Zero(t, c.Filled)
					}
					require.Equal(t, want, dump(t, target))
				}
				keys, err := keystore.New(target.Keys, prefix, keystore.Options{Sealing: target.Sealing})
				require.NoError(t, err)
				value, err := keys.Get(t.Context(), "ski00")
				require.NoError(t, err)
				require.Equal(t, "secret key identity 0 0\x00", string(value))
				require.NoError(t, keys.Close())
			}
		})
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		s := stores(t, open(t))
		b := backup(t, s)
		summary, err := Restore(t.Context(), bytes.NewReader(b), passphrase, s)
		require.NoError(t, err)
		require.Zero(t, summary.Rows())
		require.Len(t, summary.Tables, len(tables))
	})
}

// Nothing is written, whatever byte is wrong and wherever the backup ends.
func TestDamagedBackupRefused(t *testing.T) {
	t.Parallel()
	source := empty(t, storage.DriverMemory)
	populate(t, source)
	b := backup(t, source)
	target := empty(t, storage.DriverMemory)
	refused := func(what string, bad []byte) {
		t.Helper()
		_, err := Restore(t.Context(), bytes.NewReader(bad), passphrase, target)
		require.True(t, errors.Is(err, ErrDamaged) || errors.Is(err, ErrPassphrase), "%s: %v", what, err)
		_, err = Verify(bytes.NewReader(bad), passphrase)
		require.Error(t, err)
	}
	for i := 0; i < len(b); i += 1 + i/60 { // each byte of the beginning, some of the rest
		bad := bytes.Clone(b)
		bad[i] ^= 1 << (i % 8)
		refused(fmt.Sprint("byte ", i), bad)
		refused(fmt.Sprint(i, " bytes"), b[:i])
	}
	bad := bytes.Clone(b)
	bad[len(b)-1] ^= 1
	refused("the last byte", bad)
	refused("one more byte", append(bytes.Clone(b), 0))
	require.Len(t, dump(t, target), 2, "nothing was written")
}

// Damage that only shows after some rows were written takes those back.
func TestLateDamage(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		source := empty(t, storage.DriverMemory)
		populate(t, source)
		for i := range 300 {
			mustExec(t, source.Identities, "INSERT INTO "+prefix+"id_signers (identity_hash, identity, info) VALUES ($1, $2, $3)", fmt.Sprint(i), []byte{1}, make([]byte, 1000))
		}
		b := backup(t, source)
		b[len(b)-1] ^= 1
		target := stores(t, open(t))
		_, err := Restore(t.Context(), bytes.NewReader(b), passphrase, target)
		require.ErrorIs(t, err, ErrDamaged)
		require.Len(t, dump(t, target), 2)
	})
}

func TestWrongPassphrase(t *testing.T) {
	t.Parallel()
	source := empty(t, storage.DriverMemory)
	populate(t, source)
	b := backup(t, source)
	target := empty(t, storage.DriverMemory)
	for _, wrong := range []string{passphrase + " ", "x", strings.ToUpper(passphrase)} {
		_, err := Restore(t.Context(), bytes.NewReader(b), wrong, target)
		require.ErrorIs(t, err, ErrPassphrase)
		_, err = Verify(bytes.NewReader(b), wrong)
		require.ErrorIs(t, err, ErrPassphrase)
	}
	_, err := Restore(t.Context(), bytes.NewReader(b), "", target)
	require.ErrorContains(t, err, "empty")
	_, err = Write(t.Context(), io.Discard, "", source, cheap)
	require.ErrorContains(t, err, "empty")
	_, err = Verify(strings.NewReader("not a backup"), passphrase)
	require.ErrorIs(t, err, ErrDamaged)
	require.Len(t, dump(t, target), 2)
}

// What somebody with the passphrase wrote, or another program, is not taken for a backup either.
func TestNoBackup(t *testing.T) {
	t.Parallel()
	source := empty(t, storage.DriverMemory)
	populate(t, source)
	text := plain(t, backup(t, source))
	lines := strings.SplitAfter(text, "\n")
	header, rows, end := lines[0], strings.Join(lines[1:len(lines)-2], ""), lines[len(lines)-2]
	require.Contains(t, end, `"end"`)
	target := empty(t, storage.DriverMemory)
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"nothing":          {"", ErrDamaged},
		"no header":        {rows + end, ErrDamaged},
		"another format":   {strings.Replace(header, format, "x", 1) + rows + end, ErrDamaged},
		"newer":            {strings.Replace(header, `"version":1`, `"version":2`, 1) + rows + end, ErrVersion},
		"other columns":    {strings.Replace(header, `"conf_id"`, `"conf_no"`, 1) + rows + end, ErrVersion},
		"another TMS":      {strings.Replace(header, prefix, "other__", 1) + rows + end, ErrOtherTMS},
		"no end":           {header + rows, ErrDamaged},
		"a row less":       {header + strings.Join(lines[2:len(lines)-2], "") + end, ErrDamaged},
		"another row less": {header + strings.Replace(rows, lines[len(lines)-3], "", 1) + end, ErrDamaged},
		"a row twice":      {header + lines[1] + rows + end, ErrDamaged},
		"more":             {header + rows + end + end, ErrDamaged},
		"two headers":      {header + header + rows + end, ErrDamaged},
		"another table":    {header + strings.Replace(rows, `"table":"wallets"`, `"table":"tokens"`, 1) + end, ErrDamaged},
		"unknown member":   {header + strings.Replace(rows, `"table"`, `"tabel"`, 1) + end, ErrDamaged},
		"a column less":    {header + strings.Replace(rows, `"row":["id",`, `"row":[`, 1) + end, ErrDamaged},
		"another type":     {header + strings.Replace(rows, `"row":["id",`, `"row":[7,`, 1) + end, ErrDamaged},
		"NULL":             {header + strings.Replace(rows, `"row":["id",`, `"row":[null,`, 1) + end, ErrDamaged},
		"a long line":      {header + strings.Repeat("x", maxLine+1), ErrDamaged},
	} {
		_, err := Restore(t.Context(), bytes.NewReader(sealed(t, c.text)), passphrase, target)
		require.ErrorIs(t, err, c.want, name)
	}
	require.Len(t, dump(t, target), 2)

	b, err := openPlain(strings.NewReader(header + strings.Repeat("x", maxLine+1)))
	require.NoError(t, err)
	_, _, err = b.next()
	require.ErrorIs(t, err, ErrDamaged, "a long line")
}

// What is there and differs is not overwritten, and nothing else is written then.
func TestConflict(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		source := empty(t, storage.DriverMemory)
		populate(t, source)
		b := backup(t, source)
		db := open(t)
		for _, change := range []string{
			"INSERT INTO " + prefix + "key_store (key, val) VALUES ('ski00', '\x01another')",
			"INSERT INTO " + prefix + "id_cfgs (id, type, url, conf_id) VALUES ('id', 'type', 'url', 'other')",
			"INSERT INTO " + prefix + `requests (tx_id, request, status, application_metadata, public_metadata, pp_hash, stored_at) VALUES ('tx2', 'another', 2, '{}', '{}', 'h', '2026-01-01 00:00:00.000')`,
			"INSERT INTO " + prefix + `requests (tx_id, request, status, application_metadata, public_metadata, pp_hash, stored_at) VALUES ('tx1', 'request of tx1', 2, '{"other":""}', '{}', 'h', '2026-01-01 00:00:00.000')`,
		} {
			target := stores(t, db)
			target.Sealing = keystore.Plain()
			if db.Backend() == storage.SQLite { // whose tables tell text and bytes apart
				for _, v := range []string{"'\x01another'", "'another'", "'h'", "'request of tx1'"} {
					change = strings.ReplaceAll(change, v, "CAST("+v+" AS BLOB)")
				}
			}
			mustExec(t, db, change)
			before := dump(t, target)
			_, err := Restore(t.Context(), bytes.NewReader(b), passphrase, target)
			require.ErrorIs(t, err, ErrConflict)
			require.Equal(t, before, dump(t, target))
			for _, table := range []string{"key_store", "id_cfgs", "requests"} {
				mustExec(t, db, "DELETE FROM "+prefix+table)
			}
		}
		_, err := Restore(t.Context(), bytes.NewReader(b), passphrase, stores(t, db))
		require.NoError(t, err)
	})
}

// A rescan that was first has the requests without the application's metadata, and may know more about how they ended.
func TestRestoreAfterRescan(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		source := empty(t, storage.DriverMemory)
		populate(t, source)
		target := stores(t, open(t))
		request(t, target.Transactions, "requests", "tx1", token.Confirmed, "{}")
		request(t, target.Transactions, "requests", "tx2", token.Confirmed, `{"added":"later"}`)
		for i := range 2 {
			summary, err := Restore(t.Context(), bytes.NewReader(backup(t, source)), passphrase, target)
			require.NoError(t, err)
			at := slices.IndexFunc(summary.Tables, func(c Count) bool { return c.Table == "requests" })
			require.Equal(t, Count{"requests", 3, int64(1 - i), int64(1 - i)}, summary.Tables[at])
			for txID, want := range map[string]string{"tx1": `{"k":"dg==","a":"bnVsbA=="}`, "tx2": `{"added":"later"}`} {
				var metadata string
				var status token.TxStatus
				require.NoError(t, target.Transactions.Read().QueryRowContext(t.Context(),
					"SELECT application_metadata, status FROM "+prefix+"requests WHERE tx_id = $1", txID).Scan(&metadata, &status))
				require.JSONEq(t, want, metadata)
				require.Equal(t, token.Confirmed, status)
			}
		}
	})
}

// Stores in databases of their own: all of them are written or none.
func TestSeveralDatabases(t *testing.T) {
	t.Parallel()
	source := empty(t, storage.DriverMemory)
	populate(t, source)
	b, want := backup(t, source), dump(t, source)
	target := func() Stores {
		s := empty(t, storage.DriverSQLite)
		s.Keys, s.Transactions, s.Audit = empty(t, storage.DriverPostgres).Keys, empty(t, storage.DriverMemory).Keys, empty(t, storage.DriverPostgres).Keys
		return s
	}
	good := target()
	_, err := Restore(t.Context(), bytes.NewReader(b), passphrase, good)
	require.NoError(t, err)
	require.Equal(t, want, dump(t, good))

	bad := target()
	request(t, bad.Audit, "aud_requests", "tx1", token.Pending, `{"other":""}`)
	_, err = Restore(t.Context(), bytes.NewReader(b), passphrase, bad)
	require.ErrorIs(t, err, ErrConflict)
	require.Len(t, dump(t, bad), 3)

	partial := target()
	partial.Audit = nil
	_, err = Restore(t.Context(), bytes.NewReader(b), passphrase, partial)
	require.ErrorIs(t, err, ErrNoDatabase)
	require.Len(t, dump(t, partial), 2)
	source.Audit = nil
	_, err = Restore(t.Context(), bytes.NewReader(backup(t, source)), passphrase, partial)
	require.NoError(t, err, "what was left out of the backup is not missed")

	_, err = Write(t.Context(), io.Discard, passphrase, Stores{Prefix: prefix}, cheap)
	require.ErrorContains(t, err, "no database")
}

// What is committed while a backup is written is not in it, in any table.
func TestOneSnapshot(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		s := stores(t, open(t))
		populate(t, s)
		want := backup(t, s)
		once := false
		var b bytes.Buffer
		// The first bytes are written when the snapshot has been taken and no row has been read.
		_, err := Write(t.Context(), writerFunc(func(p []byte) (int, error) {
			if !once {
				once = true
				request(t, s.Audit, "aud_requests", "later", token.Pending, "{}")
				mustExec(t, s.Keys, "DELETE FROM "+prefix+"key_store")
			}
			return b.Write(p)
		}), passphrase, s, cheap)
		require.NoError(t, err)
		require.True(t, once)
		require.Equal(t, plain(t, want), plain(t, b.Bytes()))
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestWriteFails(t *testing.T) {
	t.Parallel()
	s := empty(t, storage.DriverMemory)
	populate(t, s)
	full := errors.New("full")
	for n := range 3 {
		_, err := Write(t.Context(), writerFunc(func(p []byte) (int, error) {
			if n--; n < 0 {
				return 0, full
			}
			return len(p), nil
		}), passphrase, s, cheap)
		require.ErrorIs(t, err, full)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Write(ctx, io.Discard, passphrase, s, cheap)
	require.ErrorIs(t, err, context.Canceled)
	_, err = Stats(ctx, s)
	require.ErrorIs(t, err, context.Canceled)

	// Keys that cannot be opened would be no backup.
	for _, sealing := range []*keystore.Sealing{nil, keystore.Plain(), empty(t, storage.DriverMemory).Sealing} {
		other := s
		other.Sealing = sealing
		_, err = Write(t.Context(), io.Discard, passphrase, other, cheap)
		require.Error(t, err)
	}
	b := backup(t, s)
	target := empty(t, storage.DriverMemory)
	target.Sealing = nil
	_, err = Restore(t.Context(), bytes.NewReader(b), passphrase, target)
	require.Error(t, err)
	target.Sealing = keystore.Plain()
	require.Len(t, dump(t, target), 2)

	old := storagetest.Open(t, storage.Config{Driver: storage.DriverMemory})
	_, err = Restore(t.Context(), bytes.NewReader(b), passphrase, Stores{prefix, old, old, old, old, keystore.Plain()})
	require.ErrorIs(t, err, storage.ErrOlderSchema)
	_, err = Write(t.Context(), io.Discard, passphrase, s, Options{WorkFactor: maxWorkFactor + 1})
	require.ErrorContains(t, err, "work factor")
}

func TestWriteFile(t *testing.T) {
	t.Parallel()
	s := empty(t, storage.DriverMemory)
	populate(t, s)
	dir := t.TempDir()
	path := filepath.Join(dir, "node.age")
	summary, err := WriteFile(t.Context(), path, passphrase, s, cheap)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	verified, err := Verify(f, passphrase)
	require.NoError(t, err)
	require.Equal(t, summary.Rows(), verified.Rows())

	_, err = WriteFile(t.Context(), path, "another", s, cheap)
	require.ErrorIs(t, err, fs.ErrExist)
	broken := s
	broken.Sealing = nil
	_, err = WriteFile(t.Context(), filepath.Join(dir, "broken.age"), passphrase, broken, cheap)
	require.Error(t, err)
	_, err = WriteFile(t.Context(), filepath.Join(dir, "none", "x.age"), passphrase, s, cheap)
	require.ErrorIs(t, err, fs.ErrNotExist)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "a failure leaves no file")
}

func TestStats(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		s := stores(t, open(t))
		populate(t, s)
		got, err := Stats(t.Context(), s)
		require.NoError(t, err)
		require.Equal(t, []Stat{{"id_cfgs", 2, 0, 0}, {"id_info", 7, 0, 0}, {"id_signers", 7, 0, 0}, {"wallets", 6, 0, 0}, {"key_store", 6, 0, 0},
			{"requests", 3, 2, 1}, {"aud_requests", 3, 2, 1}}, got)
		s.Audit, s.Keys = nil, nil
		got, err = Stats(t.Context(), s)
		require.NoError(t, err)
		require.Len(t, got, 5)
	})
}

// Every column of the tables is in a backup, but for the claims of recovery: one that a migration adds is not forgotten.
func TestAllColumns(t *testing.T) {
	t.Parallel()
	s := empty(t, storage.DriverMemory)
	for _, table := range tables {
		columns, err := storage.Collect(storage.Query(t.Context(), s.Keys.Read(), storage.Column[string],
			"SELECT name FROM pragma_table_info($1) WHERE name NOT LIKE 'recovery_%' ORDER BY cid", prefix+table.name))
		require.NoError(t, err)
		require.ElementsMatch(t, columns, table.names())
		key, err := storage.Collect(storage.Query(t.Context(), s.Keys.Read(), storage.Column[string],
			"SELECT name FROM pragma_table_info($1) WHERE pk > 0 ORDER BY pk", prefix+table.name))
		require.NoError(t, err)
		require.Equal(t, key, table.names()[:table.key])
	}
}

// Whoever has the passphrase may have written anything: a row is read as it is spelt or not at all.
func FuzzRow(f *testing.F) {
	f.Add([]byte(`{"table":"wallets","row":["h","w",0,null,"e","2026-01-02T03:04:05Z","c"]}`))
	f.Add([]byte(`{"table":"requests","row":["t","cg==",1,"","{}","null","","2026-01-02T03:04:05.678Z"]}`))
	f.Add([]byte(`{"end":{"wallets":1}}`))
	header := newHeader(prefix, made)
	f.Fuzz(func(t *testing.T, text []byte) {
		var first bytes.Buffer
		if err := writeLine(&first, line{Header: header}); err != nil {
			t.Fatal(err)
		}
		b, err := openPlain(io.MultiReader(&first, bytes.NewReader(text)))
		if err != nil {
			t.Fatal(err)
		}
		i, r, err := b.next()
		if err != nil {
			return
		}
		values, err := tables[i].encode(r)
		if err != nil {
			t.Skip() // a moment that no JSON can say
		}
		again, err := tables[i].decode(values)
		if err != nil {
			t.Fatal(err)
		}
		if _, differs := tables[i].merge(r, again); differs != "" {
			t.Fatal(differs)
		}
	})
}
