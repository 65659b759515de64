package connector_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/connector"
	"dongate/jsonrpc"
)

const (
	flowID    = "0x00000000000000000000000000000000000000000000000000000000000000ab"
	flowOwner = "0x00000000000000000000000000000000000000cd"
)

// page is the least of an action.
func page() connector.ActionRequest {
	return connector.ActionRequest{WorkflowID: "AB", WorkflowOwner: "0xCD", URL: "https://api.example.com/price"}
}

// outcome is what Action returned.
type outcome struct {
	response *connector.ActionResponse
	err      error
}

// begin calls Action.
func begin(ctx context.Context, c *connector.Connector, a connector.ActionRequest) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		r, err := c.Action(ctx, a)
		done <- outcome{r, err}
	}()
	return done
}

func (p *peer) answerAction(id, params string) {
	p.t.Helper()
	p.send(id, "http_action", params)
}

const found = `{"statusCode":200,"headers":{"X-A":"1"},"multiHeaders":{"X-A":["1"]},"body":"cHJpY2U=","externalEndpointLatency":5000000,` +
	`"isExternalEndpointError":false,"isValidationError":false}`

func TestActionIsSentAndAnswered(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	c, _ := start(t, nil, d)
	p := d.accept()
	waitConnected(t, c, 1)
	done := begin(t.Context(), c, page())
	text, m := p.read()
	require.Regexp(t, regexp.MustCompile(`^http_action/`+flowID+`/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`), m.ID)
	require.Equal(t, "http_action", m.Method)
	require.JSONEq(t, `{"url":"https://api.example.com/price","maxBytes":2752512,"workflowId":"`+flowID+`","workflowOwner":"`+flowOwner+`"}`, string(m.Result), text)
	require.Equal(t, 1, c.Stats().Actions)

	p.answerAction(m.ID, found)
	o := <-done
	require.NoError(t, o.err)
	require.Equal(t, &connector.ActionResponse{StatusCode: 200, Header: http.Header{"X-A": {"1"}}, Body: []byte("price"), Latency: 5 * time.Millisecond}, o.response)
	s := c.Stats()
	require.Zero(t, s.Actions)
	require.EqualValues(t, 1, s.Gateways[0].Actions)
	require.Zero(t, s.Gateways[0].Unsolicited)
}

func TestActionOutcomes(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	c, _ := start(t, nil, d)
	p := d.accept()
	waitConnected(t, c, 1)
	long := strings.Repeat("é", 1000)
	for _, test := range []struct {
		params string
		want   connector.ActionError
		text   string
	}{
		{`{"errorMessage":"the address is ours","isValidationError":true}`, connector.ActionError{Validation: true, Message: "the address is ours"}, "refused: the address is ours"},
		{`{"errorMessage":"no such host","isExternalEndpointError":true,"statusCode":200}`, connector.ActionError{External: true, Message: "no such host"}, "endpoint failed: no such host"},
		{`{"errorMessage":"oops","isExternalEndpointError":false,"isValidationError":false}`, connector.ActionError{Message: "oops"}, "action failed: oops"},
		{`{"errorMessage":"` + long + `","isValidationError":true}`, connector.ActionError{Validation: true, Message: long[:1020] + "..."}, "é..."},
	} {
		done := begin(t.Context(), c, page())
		_, m := p.read()
		p.answerAction(m.ID, test.params)
		o := <-done
		require.Nil(t, o.response, test.params)
		var e *connector.ActionError
		require.ErrorAs(t, o.err, &e, test.params)
		require.Equal(t, &test.want, e)
		require.ErrorContains(t, e, test.text)
	}
	for i, params := range []string{`null`, `5`, `{}`, `[]`, `{"statusCode":99}`, `{"statusCode":1000}`, `{"statusCode":200,"body":"!"}`, `{"statusCode":"200"}`, `{"statusCode":200,"headers":[]}`} {
		done := begin(t.Context(), c, page())
		_, m := p.read()
		p.answerAction(m.ID, params)
		o := <-done
		require.Nil(t, o.response, params)
		require.ErrorIs(t, o.err, connector.ErrUnreadableAnswer, params)
		require.EqualValues(t, i+1, c.Stats().Gateways[0].Malformed, params)
	}
}

// What cannot be right is refused without a word to the gateway.
func TestActionArguments(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	c, _ := start(t, func(c *connector.Config) { c.MaxSendBytes, c.QueueBytes = 1000, 1500 }, d)
	p := d.accept()
	waitConnected(t, c, 1)
	for name, test := range map[string]struct {
		change func(*connector.ActionRequest)
		want   string
	}{
		"no workflow":       {func(a *connector.ActionRequest) { a.WorkflowID = "" }, "WorkflowID: "},
		"long workflow":     {func(a *connector.ActionRequest) { a.WorkflowID = strings.Repeat("a", 65) }, "WorkflowID: "},
		"no owner":          {func(a *connector.ActionRequest) { a.WorkflowOwner = "me" }, "WorkflowOwner: "},
		"no url":            {func(a *connector.ActionRequest) { a.URL = "" }, "URL is empty"},
		"negative timeout":  {func(a *connector.ActionRequest) { a.Timeout = -1 }, "negative"},
		"negative size":     {func(a *connector.ActionRequest) { a.MaxBytes = -1 }, "negative"},
		"negative age":      {func(a *connector.ActionRequest) { a.Cache.MaxAge = -1 }, "negative"},
		"execution, slash":  {func(a *connector.ActionRequest) { a.ExecutionID = "a/b" }, "ExecutionID"},
		"execution, long":   {func(a *connector.ActionRequest) { a.ExecutionID = strings.Repeat("a", 129) }, "ExecutionID"},
		"execution, space":  {func(a *connector.ActionRequest) { a.ExecutionID = "a b" }, "ExecutionID"},
		"header, not UTF-8": {func(a *connector.ActionRequest) { a.Header = http.Header{"X": {"secret\xff"}} }, "not valid UTF-8"},
	} {
		a := page()
		test.change(&a)
		_, err := c.Action(t.Context(), a)
		var e *connector.ActionError
		require.ErrorAs(t, err, &e, name)
		require.True(t, e.Validation, name)
		require.False(t, e.External, name)
		require.Contains(t, e.Message, test.want, name)
		require.NotContains(t, e.Message, "secret")
	}
	large := page()
	large.Body = make([]byte, 1000)
	_, err := c.Action(t.Context(), large)
	require.ErrorIs(t, err, connector.ErrTooLarge)
	elsewhere := page()
	elsewhere.Gateway = "ws://elsewhere/node"
	_, err = c.Action(t.Context(), elsewhere)
	require.ErrorIs(t, err, connector.ErrUnknownGateway)
	ended, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	_, err = c.Action(ended, page())
	require.ErrorIs(t, err, cause)
	s := c.Stats()
	require.Zero(t, s.Actions)
	require.Zero(t, s.Gateways[0].Actions)

	done := begin(t.Context(), c, page())
	_, m := p.read()
	require.Contains(t, string(m.Result), "/price", "nothing was sent before")
	p.answerAction(m.ID, found)
	require.NoError(t, (<-done).err)
	require.Panics(t, func() {
		c.Handle("http_action", func(context.Context, *jsonrpc.Request) (any, error) { return nil, nil })
	})
}

// An answer counts for the action it names, once, and from the gateway that was asked.
func TestUnsolicitedActionAnswers(t *testing.T) {
	t.Parallel()
	a, b := newDouble(t), newDouble(t)
	c, _ := start(t, nil, a, b)
	pa, pb := a.accept(), b.accept()
	waitConnected(t, c, 2)
	named := page()
	named.Gateway = b.url
	done := begin(t.Context(), c, named)
	_, m := pb.read()
	pa.answerAction(m.ID, `{"statusCode":201}`) // not the one that was asked
	pa.answerAction("http_action/"+flowID+"/made-up", found)
	eventually(t, "two answers", func() bool { return c.Stats().Gateways[0].Unsolicited == 2 })
	require.Equal(t, 1, c.Stats().Actions)
	pb.answerAction(m.ID, found)
	pb.answerAction(m.ID, `{"statusCode":202}`)
	o := <-done
	require.NoError(t, o.err)
	require.Equal(t, 200, o.response.StatusCode)
	eventually(t, "the second", func() bool { return c.Stats().Gateways[1].Unsolicited == 1 })
	require.Zero(t, c.Stats().Gateways[0].Malformed)
	require.Zero(t, c.Stats().Gateways[0].Unhandled)
}

// The answer may come on another connection than the action went out on, and the action is written once.
func TestActionAnswerFollowsTheNode(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	c, _ := start(t, nil, d)
	p := d.accept()
	waitConnected(t, c, 1)
	done := begin(t.Context(), c, page())
	_, m := p.read()
	p.close()
	p = d.accept()
	p.answerAction(m.ID, found)
	o := <-done
	require.NoError(t, o.err)
	require.Equal(t, "price", string(o.response.Body))
	again := begin(t.Context(), c, page())
	_, m2 := p.read()
	require.NotEqual(t, m.ID, m2.ID, "the first is not written again")
	p.answerAction(m2.ID, found)
	require.NoError(t, (<-again).err)
}

func TestActionChoosesItsGateway(t *testing.T) {
	t.Parallel()
	a, b := newDouble(t), newDouble(t)
	stay := make(chan struct{})
	b.answer(func(w http.ResponseWriter, _ *http.Request) bool { // b is away at first
		select {
		case <-stay:
			return false
		default:
			http.Error(w, "later", http.StatusServiceUnavailable)
			return true
		}
	})
	c := newConnector(t, nil, b, a)
	_, err := c.Action(t.Context(), page())
	require.ErrorIs(t, err, connector.ErrNotConnected)
	run(t, c)
	pa := a.accept()
	waitConnected(t, c, 1)

	// The first that is connected.
	done := begin(t.Context(), c, page())
	_, m := pa.read()
	pa.answerAction(m.ID, found)
	require.NoError(t, (<-done).err)

	// A named one is waited for, as long as the caller does.
	named := page()
	named.Gateway = b.url
	gone, leave := context.WithCancel(t.Context())
	given := begin(gone, c, named)
	eventually(t, "it is queued", func() bool { return c.Stats().Gateways[0].Queued == 1 })
	leave()
	require.ErrorIs(t, (<-given).err, context.Canceled)
	require.Zero(t, c.Stats().Gateways[0].Queued, "it is not sent any more")
	named.ExecutionID = "e1"
	done = begin(t.Context(), c, named)
	close(stay)
	pb := b.accept()
	_, m = pb.read()
	hasPrefix(t, m.ID, "http_action/"+flowID+"/e1/")
	pb.answerAction(m.ID, found)
	require.NoError(t, (<-done).err)

	// In a handler: the one that asked, though another comes first.
	c.Handle("m", func(ctx context.Context, _ *jsonrpc.Request) (any, error) {
		r, err := c.Action(ctx, page())
		if err != nil {
			return nil, err
		}
		return string(r.Body), nil
	})
	waitConnected(t, c, 2)
	pa.send("r", "m", `{}`)
	_, m = pa.read()
	hasPrefix(t, m.ID, "http_action/")
	pa.answerAction(m.ID, found)
	_, m = pa.read()
	require.Equal(t, `"price"`, string(m.Result))
}

// Many at once, answered in another order, and never more than may wait.
func TestActionsAreBoundedAndIndependent(t *testing.T) {
	t.Parallel()
	const most = 32
	d := newDouble(t)
	c, _ := start(t, func(c *connector.Config) { c.MaxActions = most }, d)
	p := d.accept()
	waitConnected(t, c, 1)
	for range 3 {
		var all sync.WaitGroup
		for i := range most {
			all.Go(func() {
				a := page()
				a.URL += fmt.Sprintf("/%d", i)
				r, err := c.Action(context.Background(), a)
				if err != nil || string(r.Body) != fmt.Sprintf("/%d", i) {
					t.Errorf("%d: %v %v", i, r, err)
				}
			})
		}
		var asked []jsonrpc.Response
		for range most {
			_, m := p.read()
			asked = append(asked, m)
		}
		_, err := c.Action(t.Context(), page())
		require.ErrorIs(t, err, connector.ErrTooManyActions)
		for i := range asked {
			m := asked[len(asked)-1-i]
			url := regexp.MustCompile(`price(/\d+)"`).FindStringSubmatch(string(m.Result))
			p.answerAction(m.ID, fmt.Sprintf(`{"statusCode":200,"body":%q}`, encode64(url[1])))
		}
		all.Wait()
		require.Zero(t, c.Stats().Actions)
	}
}
