package jsonrpc

import (
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
)

func TestAppend(t *testing.T) {
	t.Parallel()
	id := `a"b` + "\n"
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{AppendResult(nil, id, "m", []byte(`{"x": 1.0}`)), `{"jsonrpc":"2.0","id":"a\"b\n","method":"m","result":{"x": 1.0}}`},
		{AppendResult([]byte("x"), "<é>", "", nil), `x{"jsonrpc":"2.0","id":"<é>","method":"","result":null}`},
		{AppendError(nil, nil, &Error{Code: -32700, Message: "x"}), `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`},
		{AppendError(nil, &id, &Error{Code: 1, Message: `"`, Data: []byte(`{"a":1}`)}), `{"jsonrpc":"2.0","id":"a\"b\n","error":{"code":1,"message":"\"","data":{"a":1}}}`},
		{AppendNodeError(nil, id, "m", &Error{Code: 1, Message: "x", Data: []byte("[]")}), `{"jsonrpc":"2.0","id":"a\"b\n","method":"m","error":{"code":1,"message":"x","data":[]}}`},
		{AppendRequest(nil, &Request{ID: "a", Method: "m", Params: []byte("[1]")}), `{"jsonrpc":"2.0","id":"a","method":"m","params":[1]}`},
		{AppendRequest(nil, &Request{ID: "a", Method: "m", Auth: "t"}), `{"jsonrpc":"2.0","id":"a","method":"m","params":null,"auth":"t"}`},
	} {
		require.Equal(t, c.want, string(c.got))
	}
	require.Equal(t, `{"jsonrpc":"2.0","id":"`+"\ufffd"+`","method":"m","params":null}`, string(AppendRequest(nil, &Request{ID: "\xff", Method: "m"})))
}

// What is appended decodes to what it was made from.
func TestAppendRoundTrip(t *testing.T) {
	t.Parallel()
	want := Request{ID: "id\t😀", Method: "m", Params: []byte(`{"b":[1.50],"a":"é"}`), Auth: "x.y.z"}
	got, err := DecodeRequest(AppendRequest(nil, &want))
	require.NoError(t, err)
	require.Equal(t, want, got)

	response, err := DecodeResponse(AppendResult(nil, "a", "m", []byte("[1]")))
	require.NoError(t, err)
	require.Equal(t, Response{ID: "a", Method: "m", Result: []byte("[1]")}, response)

	failure := &Error{Code: CodeConflict, Message: "m", Data: []byte(`{"reason":"conflict"}`)}
	id := "a"
	response, err = DecodeResponse(AppendError(nil, &id, failure))
	require.NoError(t, err)
	require.Equal(t, Response{ID: "a", Error: failure}, response)

	// The error object itself is the same through the JSON library.
	text, err := json.Marshal(failure)
	require.NoError(t, err)
	require.Equal(t, `{"code":-32001,"message":"m","data":{"reason":"conflict"}}`, string(text))
	text, err = json.Marshal(&Error{Code: 1, Message: "m"})
	require.NoError(t, err)
	require.Equal(t, `{"code":1,"message":"m"}`, string(text))
}
