package storage_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dongate/storage"
)

func TestCheckPostgresDSN(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing.crt")
	for dsn, want := range map[string]string{
		"postgres://u:p@h:5432/db": "", "postgresql:///db?host=/run": "", "host=h user=u password=p": "", "host=a,b port=1,2": "",
		"postgres://u:hunter2@h:port/":                                     "a port is no number",
		"postgres://u:hunter2@h:99999/":                                    "a port is no number",
		"postgres://u:hunt%er2@h/":                                         "it starts as a URL and is none",
		"/var/lib/dongate.db":                                              "it is neither a URL",
		"host=h password='hunter2":                                         "it is neither a URL",
		"host=h password=hunter2 sslmode=sometimes":                        "its sslmode is not known",
		"host=h password=hunter2 sslmode=verify-ca sslrootcert=" + missing: "its certificates cannot be used (\"" + missing + "\": no such file or directory)",
		"host=h password=hunter2 connect_timeout=long":                     "no number of seconds",
		"host=h password=hunter2 target_session_attrs=best":                "target_session_attrs",
		"host=a,b,c port=1,2 password=hunter2":                             "not as many ports",
		"host=h password=hunter2 default_query_exec_mode=fast":             "one of its settings",
	} {
		err := storage.CheckPostgresDSN(dsn)
		if want == "" {
			require.NoError(t, err, dsn)
			continue
		}
		require.ErrorIs(t, err, storage.ErrDSN, dsn)
		require.ErrorContains(t, err, want, dsn)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

// Whatever is wrong around a password, it is not shown, neither by the check nor by the attempt to open.
func TestBadDSNHidesThePassword(t *testing.T) {
	t.Parallel()
	part := rapid.SampledFrom([]string{"/", "?", "#", "@", ":", "%", "%zz", "[", "]", " ", "'", "\\", "=", ",", "&", "x", "port=", "host="})
	rapid.Check(t, func(t *rapid.T) {
		some := func(name string) string { return strings.Join(rapid.SliceOfN(part, 0, 4).Draw(t, name), "") }
		dsn := rapid.SampledFrom([]string{"postgres://u:", "postgresql://", "host=h password=", "password='", ""}).Draw(t, "start") +
			some("before") + "hunter2" + some("after") + rapid.SampledFrom([]string{"@h/db", " user=u", "@h:port/", "", "?sslmode=x"}).Draw(t, "end")
		if err := storage.CheckPostgresDSN(dsn); err != nil {
			require.ErrorIs(t, err, storage.ErrDSN)
			require.NotContains(t, err.Error(), "hunter2", dsn)
		}
	})
}
