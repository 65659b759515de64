package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dongate/internal/simchain"
	"dongate/relayer/fhevm"
	"dongate/storage"
	"dongate/storage/storagetest"
)

// estate is a chain and a configuration of gateways that relay to it.
type estate struct {
	*testing.T
	chain *simchain.Process
	net   simchain.Config
	file  string
}

func newEstate(t *testing.T, o simchain.Options, change func(file map[string]any)) *estate {
	t.Helper()
	p, err := simchain.StartProcess(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	_, err = p.CommitN(t.Context(), 64) // a final block has the contracts, which the key material is read from
	require.NoError(t, err)
	e := &estate{T: t, chain: p, net: p.Config(), file: filepath.Join(t.TempDir(), "gateway.json")}
	c := e.configuration()
	if change != nil {
		change(c)
	}
	text, err := json.Marshal(c)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(e.file, text, 0o600))
	return e
}

// configuration is a file whose relayer uses the chain over HTTP and WebSocket, on the client listener.
func (e *estate) configuration() map[string]any {
	type m = map[string]any
	return m{
		"userServerConfig":        m{"host": "127.0.0.1", "port": 0},
		"nodeServerConfig":        m{"host": "127.0.0.1", "port": 0},
		"admin":                   m{"port": 0},
		"connectionManagerConfig": m{"authGatewayId": "gateway-1"},
		"services":                []any{m{"serviceName": "workflows", "dons": []any{"don"}, "handlers": []any{m{"name": "http-capabilities"}}}},
		"shardedDONs":             []any{m{"donName": "don", "f": 0, "shards": []any{m{"nodes": []any{m{"address": "0x0000000000000000000000000000000000000001"}}}}}},
		"storage":                 m{"driver": "sqlite", "dsn": filepath.Join(filepath.Dir(e.file), "relayer.db")},
		"relayer": m{
			"enabled": true,
			"chain":   m{"rpcURLs": []any{e.net.HTTP}, "chainId": e.net.ChainID, "listeners": []any{m{"type": "subscription", "url": e.net.WS}}, "startBlock": max(e.net.StartBlock, 1)},
			"contracts": m{"decryption": e.net.Decryption.Hex(), "inputVerification": e.net.InputVerification.Hex(), "protocolConfig": e.net.ProtocolConfig.Hex(),
				"kmsGeneration": e.net.KMSGeneration.Hex(), "feeToken": e.net.FeeToken.Hex(), "feeSpender": e.net.FeeSpender.Hex()},
			"hostChains": []any{m{"chainId": e.net.ChainID, "rpcURL": e.net.HTTP, "acl": e.net.ACL.Hex()}},
			"signer":     m{"keyEnv": "RELAYER_KEY"},
			"threshold":  e.net.Threshold,
		},
	}
}

// output collects what a process says.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String returns it.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// command is this program as the gateway.
func (e *estate) command(args ...string) (cmd *exec.Cmd, stdout, stderr *output) {
	self, err := os.Executable()
	require.NoError(e, err)
	cmd = exec.Command(self)
	cmd.Args = append([]string{"gateway"}, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GOCOVERDIR=" + os.Getenv("GOCOVERDIR"), "RELAYER_KEY=" + e.net.Accounts[0].Key}
	stdout, stderr = &output{}, &output{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// run runs a command to its end.
func (e *estate) run(code int, args ...string) (stdout, stderr string) {
	e.Helper()
	cmd, out, said := e.command(args...)
	_ = cmd.Run()
	require.Equal(e, code, cmd.ProcessState.ExitCode(), "%v\n%s\n%s", args, out, said)
	return out.String(), said.String()
}

// server is a gateway in a process.
type server struct {
	*estate
	cmd                  *exec.Cmd
	log                  *output
	user, admin, relayer string
	ended                chan struct{}
}

func (e *estate) serve() *server {
	e.Helper()
	cmd, _, log := e.command("serve", "--config", e.file, "--ready-without-nodes")
	require.NoError(e, cmd.Start())
	s := &server{estate: e, cmd: cmd, log: log, ended: make(chan struct{})}
	go func() { _ = cmd.Wait(); close(s.ended) }()
	e.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-s.ended
		if e.Failed() {
			e.Log(log)
		}
	})
	s.until("listening", func() bool {
		for line := range strings.Lines(log.String()) {
			var entry struct {
				Msg     string `json:"msg"`
				User    string `json:"user"`
				Admin   string `json:"admin"`
				Relayer string `json:"relayer"`
			}
			if strings.HasSuffix(line, "\n") && json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "listening" {
				s.user, s.admin, s.relayer = entry.User, entry.Admin, entry.Relayer
			}
		}
		return s.user != ""
	})
	return s
}

func (s *server) until(what string, so func() bool) {
	s.Helper()
	if !assert.Eventually(s, so, patience, 5*time.Millisecond, what) {
		s.FailNow()
	}
}

// reply is an answer of the API.
type reply struct {
	status int
	header http.Header
	text   string
	Status string `json:"status"`
	State  string `json:"state"`
	Result struct {
		JobID string `json:"jobId"`
	} `json:"result"`
	Error struct {
		Label string `json:"label"`
	} `json:"error"`
}

func (s *server) do(method, url string, body []byte) (r reply) {
	s.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(s.Context()), method, url, bytes.NewReader(body))
	require.NoError(s, err)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}).Do(req)
	require.NoError(s, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	r.status, r.header, r.text = resp.StatusCode, resp.Header, string(text)
	if resp.Header.Get("Content-Type") == "application/json" {
		require.NoError(s, json.Unmarshal(text, &r), r.text)
	}
	return r
}

// post posts a request and returns its job's URL.
func (s *server) post(at string, r simchain.Request) string {
	s.Helper()
	url := "http://" + at + string(r.Endpoint)
	got := s.do("POST", url, r.Body)
	require.Equal(s, http.StatusAccepted, got.status, got.text)
	return url + "/" + got.Result.JobID
}

// stop drains it.
func (s *server) stop() {
	s.Helper()
	require.NoError(s, s.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.Fatal("it does not stop")
	}
	require.Zero(s, s.cmd.ProcessState.ExitCode())
}

func jobOf(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }

// Each endpoint, from the POST to the result, through the real process, a real chain and SQLite; then what an operator does with them.
func TestRelayerServe(t *testing.T) {
	t.Parallel()
	e := newEstate(t, simchain.Options{Interval: 20 * time.Millisecond, Threshold: 3, Nodes: 5, Accounts: 1, KMS: &simchain.KMSOptions{}}, nil)
	out, _ := e.run(0, "check", "--config", e.file, "--online")
	require.Contains(t, out, "ok: gateway chain, node ")
	require.Contains(t, out, "ok: relayer.hostChains[0].acl ")
	require.Contains(t, out, "takes subscriptions")
	require.NotContains(t, out, "problem")
	e.run(6, "relayer", "list", "--config", e.file) // no database yet

	s := e.serve()
	var urls []string
	for _, at := range fhevm.Endpoints {
		urls = append(urls, s.post(s.user, e.net.NewRequest(at, 1, time.Now())))
	}
	for i, url := range urls {
		s.until(url, func() bool {
			r := s.do("GET", url, nil)
			require.Contains(t, []int{http.StatusOK, http.StatusAccepted}, r.status, r.text)
			if r.status == http.StatusOK {
				require.Equal(t, "succeeded", r.Status, fhevm.Endpoints[i])
			}
			return r.status == http.StatusOK
		})
	}
	s.until("key material", func() bool { return s.do("GET", "http://"+s.user+"/v2/keyurl", nil).status == http.StatusOK })
	verdict, err := e.chain.Judge(t.Context())
	require.NoError(t, err)
	require.Len(t, verdict.Accepted, len(urls))
	require.Empty(t, verdict.Twice())

	require.Contains(t, s.do("GET", "http://"+s.user+"/healthz", nil).text, `{"status":"healthy","dependencies":{"database":"ok","gateway_http":"ok"}}`)
	require.Contains(t, s.do("GET", "http://"+s.admin+"/readyz", nil).text, `"relayer":{"dispatcher":true,"epoch":1,"paused":false}`)
	metrics := s.do("GET", "http://"+s.admin+"/metrics", nil).text
	for _, line := range []string{
		"relayer_dispatcher_lock_held 1", `relayer_request_count{req_type="user_decrypt",status="completed"} 3`, "relayer_signer_blocked 0", "relayer_signer_balance ",
		"relayer_signer_fee_allowance ", `relayer_http_responses_total{endpoint="keyurl"`, `relayer_rpc_calls_total{chain="gateway",method="eth_`, "dongate_requests_total",
	} {
		require.Contains(t, metrics, line)
	}

	// There is one relayer to a SQLite file.
	_, said := e.run(5, "serve", "--config", e.file)
	require.Contains(t, said, "another process runs the relayer on this database")
	require.Contains(t, said, "relayer.enabled")

	out, _ = e.run(0, "relayer", "show", "--config", e.file, jobOf(urls[2]))
	for _, text := range []string{"user_decrypt (user_decrypt)", "completed since", "complete with 3", "1 transaction:", "mined in block"} {
		require.Contains(t, out, text)
	}
	_, said = e.run(1, "relayer", "retry", "--config", e.file, jobOf(urls[2]))
	require.Contains(t, said, "is completed: only what failed or timed out can be tried again")

	// Paused, nothing more is sent, and everything is taken.
	e.run(0, "relayer", "pause", "--config", e.file)
	s.until("paused", func() bool {
		return strings.Contains(s.do("GET", "http://"+s.admin+"/readyz", nil).text, `"paused":true`)
	})
	s.until("paused", func() bool { return strings.Contains(s.log.String(), "paused") })
	waiting := s.post(s.user, e.net.NewRequest(fhevm.EndpointInputProof, 2, time.Now()))
	s.stop()
	s = e.serve() // and a restart changes nothing about it
	s.until("the dispatcher", func() bool {
		return strings.Contains(s.do("GET", "http://"+s.admin+"/readyz", nil).text, `"dispatcher":true`)
	})
	url := "http://" + s.user + string(fhevm.EndpointInputProof) + "/" + jobOf(waiting)
	require.Equal(t, "processing", s.do("GET", url, nil).State)
	e.run(0, "relayer", "resume", "--config", e.file)
	s.until("result", func() bool { return s.do("GET", url, nil).status == http.StatusOK })
	s.stop()
	require.NotContains(t, s.log.String(), e.net.HTTP+"/")
	require.NotContains(t, s.log.String(), e.net.Accounts[0].Key)
}

// While the signer cannot pay, nothing new is taken; check --online says so, too. The relayer has a listener of its own.
func TestRelayerCannotPay(t *testing.T) {
	t.Parallel()
	e := newEstate(t, simchain.Options{Interval: 20 * time.Millisecond, Accounts: 1}, func(file map[string]any) {
		r := file["relayer"].(map[string]any)
		r["listen"] = "127.0.0.1:0"
		r["corsAllowedOrigins"] = []any{"https://app.example.com"}
		r["signer"].(map[string]any)["minBalance"] = 1e9
	})
	out, _ := e.run(3, "check", "--config", e.file, "--online")
	require.Contains(t, out, "problem: signer "+e.net.Accounts[0].Address.Hex()+": balance in wei")
	out, _ = e.run(3, "check", "--config", e.file, "--online", "--json")
	require.Contains(t, out, `"ok":false`)
	require.Contains(t, out, `"do":"send it native tokens of gateway chain"`)
	s := e.serve()
	require.NotEmpty(t, s.relayer)
	n := uint64(0)
	s.until("refused", func() bool {
		n++
		r := e.net.NewRequest(fhevm.EndpointInputProof, n, time.Now())
		got := s.do("POST", "http://"+s.relayer+string(r.Endpoint), r.Body)
		return got.status == http.StatusServiceUnavailable && got.Error.Label == string(fhevm.LabelInsufficientBalance)
	})
	require.Contains(t, s.do("GET", "http://"+s.admin+"/metrics", nil).text, "relayer_signer_blocked 1")
	require.Contains(t, s.do("POST", "http://"+s.user+"/v2/input-proof", []byte("{}")).text, "jsonrpc") // not there
	s.stop()
}

// Two gateways on one PostgreSQL database: one dispatches, both answer, and the other takes over.
func TestRelayerReplicas(t *testing.T) {
	t.Parallel()
	dsn := storagetest.Config(t, storage.DriverPostgres).DSN
	e := newEstate(t, simchain.Options{Interval: 20 * time.Millisecond, Threshold: 3, Nodes: 5, Accounts: 1, KMS: &simchain.KMSOptions{}}, func(file map[string]any) {
		file["storage"] = map[string]any{"driver": "postgres", "dsn": dsn}
	})
	dispatches := func(s *server) bool {
		return strings.Contains(s.do("GET", "http://"+s.admin+"/readyz", nil).text, `"dispatcher":true`)
	}
	first := e.serve()
	first.until("the dispatcher", func() bool { return dispatches(first) })
	second := e.serve()
	require.False(t, dispatches(second))
	url := second.post(second.user, e.net.NewRequest(fhevm.EndpointPublicDecrypt, 1, time.Now()))
	second.until("result", func() bool { return second.do("GET", url, nil).status == http.StatusOK })
	first.stop()
	second.until("the dispatcher", func() bool { return dispatches(second) })
	url = second.post(second.user, e.net.NewRequest(fhevm.EndpointPublicDecrypt, 2, time.Now()))
	second.until("result", func() bool { return second.do("GET", url, nil).status == http.StatusOK })
	second.stop()
	verdict, err := e.chain.Judge(t.Context())
	require.NoError(t, err)
	require.Len(t, verdict.Accepted, 2, fmt.Sprint(verdict))
}
