package egress

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// firstBuffer is the most memory given to a body on the word of its Content-Length alone.
const firstBuffer = 64 << 10

// checkResponse refuses what is HTTP by its letters and no answer to what we asked, and makes the headers valid UTF-8, so that they can be put into JSON.
func checkResponse(resp *http.Response, host string) error {
	if resp.StatusCode < 200 {
		// net/http skips other 1xx responses; 101 hands over the connection, which nobody asked for.
		return fail(StageHeaders, "%s: the endpoint answered with status %d, which ends nothing", shown(host), resp.StatusCode)
	}
	size := 0
	for name, values := range resp.Header {
		for i, v := range values {
			if size += len(name) + len(v) + len(": \r\n"); size > MaxResponseHeaderBytes {
				return fail(StageHeaders, "%s: the response's headers are over %d bytes", shown(host), MaxResponseHeaderBytes)
			}
			if !utf8.ValidString(v) {
				values[i] = strings.ToValidUTF8(v, "\uFFFD")
			}
		}
		if !utf8.ValidString(name) {
			delete(resp.Header, name)
		}
	}
	return nil
}

// buffer is memory for a body. The zero value is empty.
type buffer struct{ bytes []byte }

// bufferKept is the largest buffer that is kept for another body.
const bufferKept = 256 << 10

var buffers = sync.Pool{New: func() any { return new(buffer) }}

func newBuffer() *buffer { return buffers.Get().(*buffer) }

func (b *buffer) free() {
	if b != nil && cap(b.bytes) <= bufferKept {
		b.bytes = b.bytes[:0]
		buffers.Put(b)
	}
}

// read reads a response's body into b: at most the request's limit, decompressed if it was us who asked for compression. An error is an *External or one
// of the connection.
func (b *buffer) read(resp *http.Response, p *Prepared) ([]byte, error) {
	body, length := io.Reader(resp.Body), resp.ContentLength
	if p.method == http.MethodHead {
		return []byte{}, nil // its headers speak of a body that does not come
	}
	if p.gunzip && isGzip(resp.Header) {
		z := &unzipper{from: body}
		defer z.close()
		body, length = z, -1
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
	}
	if length > p.maxBytes {
		return nil, tooLarge(p)
	}
	size := 512
	if length >= 0 {
		size = int(min(length+1, firstBuffer)) // one more, so that the end is seen without growing
	}
	b.bytes = slices.Grow(b.bytes[:0], size)
	for {
		n, err := body.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		switch {
		case int64(len(b.bytes)) > p.maxBytes:
			return nil, tooLarge(p)
		case err == io.EOF:
			return b.bytes, nil
		case errors.Is(err, errNotGzip):
			return nil, fail(StageBody, "%s: the response's body is not the gzip that its headers promise, or ends too early", shown(p.host))
		case err != nil:
			return nil, err
		}
		if len(b.bytes) == cap(b.bytes) {
			b.bytes = slices.Grow(b.bytes, len(b.bytes))
		}
	}
}

func tooLarge(p *Prepared) error {
	return fail(StageBody, "%s: the response's body is over %d bytes", shown(p.host), p.maxBytes)
}

func isGzip(h http.Header) bool {
	v := h["Content-Encoding"]
	return len(v) == 1 && strings.EqualFold(strings.TrimSpace(v[0]), "gzip")
}

var errNotGzip = errors.New("egress: not gzip")

var gzipReaders sync.Pool // of *gzip.Reader: 40 kB each

// unzipper decompresses what it reads; nothing at all is an empty body, as servers send it.
type unzipper struct {
	from  io.Reader
	inner sourceReader
	z     *gzip.Reader
}

// sourceReader remembers the connection's own error, which package gzip may replace.
type sourceReader struct {
	io.Reader
	err error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

func (u *unzipper) Read(p []byte) (int, error) {
	if u.z == nil {
		if err := u.open(); err != nil {
			return 0, u.explain(err)
		}
	}
	n, err := u.z.Read(p)
	return n, u.explain(err)
}

func (u *unzipper) open() error {
	u.inner.Reader = u.from
	if z, ok := gzipReaders.Get().(*gzip.Reader); ok {
		if err := z.Reset(&u.inner); err != nil {
			gzipReaders.Put(z)
			return err
		}
		u.z = z
		return nil
	}
	var err error
	u.z, err = gzip.NewReader(&u.inner)
	if err != nil {
		u.z = nil
	}
	return err
}

func (u *unzipper) explain(err error) error {
	switch {
	case err == nil || err == io.EOF:
		return err
	case u.inner.err != nil:
		return u.inner.err
	}
	return fmt.Errorf("%w: %w", errNotGzip, err)
}

func (u *unzipper) close() {
	if u.z != nil {
		_ = u.z.Reset(eof{}) // let go of the connection
		gzipReaders.Put(u.z)
		u.z = nil
	}
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }
