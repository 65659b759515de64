package dsn

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIsConnectionString(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"postgres://user:password@db/x": true, "postgresql://db": true, "file://x": true, "cockroach+tls://db": true,
		"host=db dbname=x": true, " user = x": true, "service=gateway": true, "hostaddr=10.0.0.1": true, "port=5432": true,
		"": false, "gateway.db": false, "/var/lib/dongate/a=b.db": false, "C:/x.db": false, "x=host": false, "hosts=1": false,
		"password=x": false, "./host=db": false, "9p://x": false,
	} {
		require.Equal(t, want, IsConnectionString(s), s)
	}
}
