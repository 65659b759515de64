package jsonrpc

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

// kibibyteRequest is a client's request of 1 KiB with what such requests hold: names out of order, addresses, amounts, text.
func kibibyteRequest(tb testing.TB) []byte {
	tb.Helper()
	var items []string
	for i := range 6 {
		items = append(items, fmt.Sprintf(`{"to":"0x%040x","amount":%d.50,"memo":"Überweisung %d","tags":["a","b"],"final":true}`, i, 1000*i, i))
	}
	body := `{"jsonrpc":"2.0","id":"5b1f0f5e-9a52-4c1e-8f7e-2a1c7a0d9b11","method":"workflows.execute","params":{"input":{"transfers":[` + strings.Join(items, ",") +
		`],"note":"%s"},"workflow":{"workflowID":"0x1234567890abcdef1234567890abcdef12345678901234567890abcdef123456"}}}`
	body = fmt.Sprintf(body, strings.Repeat("x", 1024-len(body)+len("%s")))
	require.Len(tb, body, 1024)
	return []byte(body)
}

func BenchmarkDecodeRequest(b *testing.B) {
	data := kibibyteRequest(b)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeRequest(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRequestDigest(b *testing.B) {
	data := kibibyteRequest(b)
	r, err := DecodeRequest(data)
	require.NoError(b, err)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Digest(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVoteDigest(b *testing.B) {
	data := kibibyteRequest(b)
	r, err := DecodeRequest(data)
	require.NoError(b, err)
	vote := Response{ID: r.ID, Method: r.Method, Result: r.Params}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := vote.VoteDigest(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSHA256 is the floor under the digests.
func BenchmarkSHA256(b *testing.B) {
	data := kibibyteRequest(b)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		sha256.Sum256(data)
	}
}

func BenchmarkCheckExactNumbers(b *testing.B) {
	data := kibibyteRequest(b)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := CheckExactNumbers(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSortMembers(b *testing.B) {
	data := kibibyteRequest(b)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := SortMembers(data); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkVoteDigestHuge shows that the cost stays linear for one number of a megabyte of digits, in its digits or in its
// exponent.
func BenchmarkVoteDigestHuge(b *testing.B) {
	for _, c := range []struct{ name, number string }{
		{"digits", strings.Repeat("7", 1<<20)},
		{"exponent", "1e" + strings.Repeat("9", 1<<20)},
		{"zeros", "1" + strings.Repeat("0", 1<<20)},
	} {
		b.Run(c.name, func(b *testing.B) {
			vote := Response{ID: "a", Result: jsontext.Value(c.number)}
			b.SetBytes(int64(len(c.number)))
			for b.Loop() {
				if _, err := vote.VoteDigest(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDigestManyNames digests an object of 100 000 members out of order, the
// dearest megabyte to canonicalize.
func BenchmarkDigestManyNames(b *testing.B) {
	v := []byte{'{'}
	for i := range 100_000 {
		v = fmt.Appendf(v, `"%05d":0,`, (i*7919)%100_000)
	}
	v[len(v)-1] = '}'
	r := &Request{ID: "1", Method: "m", Params: v}
	b.SetBytes(int64(len(v)))
	for b.Loop() {
		if _, err := r.Digest(); err != nil {
			b.Fatal(err)
		}
	}
}
