package config

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
)

func TestEnvironmentOverridesTheFile(t *testing.T) {
	t.Parallel()
	d := read(t, "minimal.json").set("userServerConfig.port", 1234).set("log.level", "debug")
	c := parse(t, d,
		"DONGATE_USERSERVERCONFIG_PORT=8080",
		"DONGATE_USERSERVERCONFIG_PORT=8081", // the last one counts
		"DONGATE_LOG_LEVEL=",                 // empty is the same as unset
		"DONGATE_SHUTDOWNTIMEOUTMS= 5000 ",
		"DONGATE_STORAGE_DSN=true", // a text, whatever it looks like
		"DONGATE_CONNECTIONMANAGERCONFIG_AUTHGATEWAYID=1234",
		"DONGATE_ADMIN_ADMINPPROF=1",
		"DONGATE_USERSERVERCONFIG_CORSENABLED=TRUE",
		"PATH=/bin", "dongate_log_level=loud", "DONGATE", "",
	)
	require.Equal(t, 8081, c.UserServer.Port)
	require.Equal(t, "debug", c.Log.Level)
	require.Equal(t, 5*time.Second, c.ShutdownTimeout)
	require.Equal(t, Secret("true"), c.Storage.DSN)
	require.Equal(t, "1234", c.ConnectionManager.AuthGatewayID)
	require.True(t, c.Admin.Pprof)
	require.True(t, c.UserServer.CORSEnabled)
	require.Equal(t, "DONGATE_USERSERVERCONFIG_CORSENABLED", c.Warnings[0].Path)
}

func TestEnvironmentRepairsTheFile(t *testing.T) {
	t.Parallel()
	c := parse(t, read(t, "minimal.json").set("userServerConfig.port", "many"), "DONGATE_USERSERVERCONFIG_PORT=8080")
	require.Equal(t, 8080, c.UserServer.Port)
}

func TestReservedVariablesAreLeftAlone(t *testing.T) {
	t.Parallel()
	environ := []string{"DONGATE_TEST_ANYTHING=1"}
	for _, name := range ReservedEnv {
		require.True(t, strings.HasPrefix(name, EnvPrefix))
		environ = append(environ, name+"=anything")
	}
	parse(t, read(t, "minimal.json"), environ...)
	list := problems(t, read(t, "minimal.json"), "DONGATE_URLS=x", "DONGATE_LOG_LEVEL=\xff", "DONGATE_RELAYER={}", "DONGATE_SERVICES=x")
	require.Len(t, list, 4)
	for _, p := range list {
		require.Zero(t, p.Line)
		require.True(t, strings.HasPrefix(p.Path, EnvPrefix))
	}
}

func TestBadVariablesNameThemselves(t *testing.T) {
	t.Parallel()
	_, err := Parse("x.json", read(t, "minimal.json").encode(), []string{"DONGATE_USERSERVERCONFIG_PORT=many"})
	require.EqualError(t, err, `environment: DONGATE_USERSERVERCONFIG_PORT: found "many"; write a port from 1 to 65535, or 0 for any free one`)
}

func TestSecretsNeverPrint(t *testing.T) {
	t.Parallel()
	const dsn = "postgres://user:hunter2@db/x"
	c := parse(t, read(t, "minimal.json").set("storage.driver", "postgres"), "DONGATE_STORAGE_DSN="+dsn)
	require.Equal(t, dsn, c.Storage.DSN.Reveal())
	v2, err := jsonv2.Marshal(c.Storage)
	require.NoError(t, err)
	text, err := c.Storage.DSN.MarshalText()
	require.NoError(t, err)
	shown := []string{string(c.Print()), string(v2), string(text), fmt.Sprint(c.Storage.DSN)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%10s"} {
		shown = append(shown, fmt.Sprintf(verb, c.Storage.DSN), fmt.Sprintf(verb, c.Storage), fmt.Sprintf(verb, *c))
	}
	for _, s := range shown {
		require.NotContains(t, s, "hunter2")
		require.NotContains(t, s, fmt.Sprintf("%x", "hunter2"))
		require.NotContains(t, s, fmt.Sprintf("%X", "hunter2"))
	}
	require.Equal(t, "[secret]", c.Storage.DSN.String())
	require.Equal(t, "", Secret("").String())

	_, err = Parse("printed.json", c.Print(), nil)
	require.ErrorContains(t, err, "DONGATE_STORAGE_DSN")
	require.ErrorContains(t, err, "in the place of a secret")
}

func TestChangesSaysWhatNeedsARestart(t *testing.T) {
	t.Parallel()
	before := parse(t, read(t, "full.json"))
	require.Empty(t, Changes(before, parse(t, read(t, "full.json"))))
	for _, c := range []struct {
		path       string
		value      any
		want       string
		reloadable bool
	}{
		{"log.level", "error", "log.level", true},
		{"log.format", "json", "log.format", false},
		{"userServerConfig.port", 1, "userServerConfig.port", false},
		{"userServerConfig.tlsCertPath", "new.pem", "userServerConfig.tlsCertPath", true},
		{"userServerConfig.trustedProxies", []string{}, "userServerConfig.trustedProxies", true},
		{"httpClientConfig.allowedPorts", []int{1}, "httpClientConfig.allowedPorts", true},
		{"shardedDONs[].f", 0, "shardedDONs", true},
		{"services[].dons", []string{"alpha"}, "services", false},
		{handlerPath + ".maxOpenBytes", 5, "services[0].handlers[0].config.maxOpenBytes", true},
		{handlerPath + ".retryConfig.multiplier", 5, "services[0].handlers[0].config.retryConfig.multiplier", true},
		{"storage.dsn", "another", "storage.dsn", false},
	} {
		after := parse(t, read(t, "full.json").set(c.path, c.value))
		require.Equal(t, []Change{{c.want, c.reloadable}}, Changes(before, after))
		require.Equal(t, []Change{{c.want, c.reloadable}}, Changes(after, before))
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"minimal.json", "full.json", "network.json", "legacy.json", "warnings.json", "invalid/many.json", "invalid/legacy.json", "invalid/http-client.json", "invalid/name-strange.json", "invalid/relayer-values.json", "invalid/relayer-rules.json", "../relayer.json"} {
		data, err := os.ReadFile(testdata + "/" + name)
		require.NoError(f, err)
		f.Add(data, "DONGATE_LOG_LEVEL=debug")
	}
	f.Add([]byte("{}"), "DONGATE_USERSERVERCONFIG_PORT=-1")
	f.Add([]byte(`{"relayer":{"hostChains":[{}]}}`), "DONGATE_RELAYER_HOSTCHAINS_0_RPCURL=https://u:p@[::1]:1/x?y")
	f.Add([]byte("\xef\xbb\xbf{}"), "DONGATE_\xff=\xff")
	f.Add([]byte(`{"services":[{"handlers":[{"name":"http-capabilities","config":{"retryConfig":[]}}]}]}`), "")
	f.Fuzz(func(t *testing.T, data []byte, env string) {
		c, err := Parse("f", data, []string{env})
		if err != nil {
			require.Nil(t, c)
			p, ok := err.(*Problems)
			require.True(t, ok)
			require.NotEmpty(t, p.List)
			require.LessOrEqual(t, len(p.List), MaxProblems)
			for _, problem := range p.List {
				require.Less(t, len(problem.String()), 4096)
			}
			return
		}
		again, err := Parse("printed", c.Print(), secretsOf(c))
		require.NoError(t, err, "%s", c.Print())
		require.Equal(t, string(c.Print()), string(again.Print()))
	})
}
