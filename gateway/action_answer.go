package gateway

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"dongate/egress"
)

// The answer to an action is a request of the same id (protocol §7). What an
// endpoint answered is encoded once for everybody who gets it: the params up to
// the latency, which comes last as it differs between who fetched and who was
// served from the cache.

// actionMessage is the answer to an action: params lack their end, the latency.
func actionMessage(id string, params []byte, latency time.Duration) []byte {
	out := make([]byte, 0, len(params)+messageFrame+len(id))
	return appendMessageEnd(append(appendMessageHead(out, id), params...), latency)
}

// messageFrame is more than what a message takes besides its id and its params.
const messageFrame = 112

// appendMessageHead appends what comes before the params.
func appendMessageHead(dst []byte, id string) []byte {
	return append(appendText(append(dst, `{"jsonrpc":"2.0","id":`...), id), `,"method":"`+methodAction+`","params":`...)
}

// appendMessageEnd appends the end of the params and of the message.
func appendMessageEnd(dst []byte, latency time.Duration) []byte {
	return append(strconv.AppendInt(append(dst, `,"externalEndpointLatency":`...), int64(latency), 10), "}}"...)
}

// endpointAnswer encodes an endpoint's answer, for the node that waits for id
// alone: the whole message, or, without an id, for everybody: the params up to the
// latency. Headers are in order, so that equal answers are equal bytes.
func endpointAnswer(r *egress.Response, id string) []byte {
	var few [32]string // on the stack; more names than that are allocated
	names := few[:0]
	size := 128 + messageFrame + len(id) + base64.StdEncoding.EncodedLen(len(r.Body))
	for name, values := range r.Header {
		names = append(names, name)
		for _, v := range values {
			size += 2 * (len(name) + len(v) + 8)
		}
	}
	slices.Sort(names)
	dst := slices.Grow([]byte(nil), size) // seldom too small; its capacity is the memory that it takes, unlike make's
	if id == "" {
		return appendEndpointAnswer(dst, r, names)
	}
	return appendMessageEnd(appendEndpointAnswer(appendMessageHead(dst, id), r, names), r.Latency)
}

// appendEndpointAnswer appends the params up to the latency; names are those of
// r's headers.
func appendEndpointAnswer(dst []byte, r *egress.Response, names []string) []byte {
	dst = append(dst, `{"isExternalEndpointError":false,"isValidationError":false,"statusCode":`...)
	dst = strconv.AppendInt(dst, int64(r.StatusCode), 10)
	for _, form := range []string{"headers", "multiHeaders"} {
		dst = append(append(append(dst, `,"`...), form...), `":{`...)
		for i, name := range names {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendText(dst, name), ':')
			if form == "headers" {
				dst = appendText(dst, strings.Join(r.Header[name], ","))
				continue
			}
			dst = append(dst, '[')
			for j, v := range r.Header[name] {
				if j > 0 {
					dst = append(dst, ',')
				}
				dst = appendText(dst, v)
			}
			dst = append(dst, ']')
		}
		dst = append(dst, '}')
	}
	dst = append(dst, `,"body":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, r.Body)
	return append(dst, '"')
}

// appendText appends a JSON string; what is not UTF-8 becomes U+FFFD.
func appendText(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			dst, _ = jsontext.AppendQuote(dst, s)
			return dst
		}
	}
	return append(append(append(dst, '"'), s...), '"') // nearly all headers
}
