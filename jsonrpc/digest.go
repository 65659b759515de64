package jsonrpc

import (
	"crypto/sha256"

	"github.com/go-json-experiment/json/jsontext"
)

// Digest returns the request digest (protocol §1): the SHA-256 of the RFC 8785 canonical form of {jsonrpc, id, method,
// params}. Auth and unknown members are not part of it; a nil Params counts as null. The error wraps [ErrCanonical].
func (r *Request) Digest() ([32]byte, error) {
	c := newCanonicalizer(numbersRFC8785)
	defer c.free()
	// The names are written in their canonical order; only what comes from outside needs sorting.
	if err := c.quoted(`{"id":`, r.ID); err != nil {
		return [32]byte{}, err
	}
	if err := c.quoted(`,"jsonrpc":"2.0","method":`, r.Method); err != nil {
		return [32]byte{}, err
	}
	c.dst = append(c.dst, `,"params":`...)
	if err := c.append(orNull(r.Params)); err != nil {
		return [32]byte{}, err
	}
	c.dst = append(c.dst, '}')
	return sha256.Sum256(c.dst), nil
}

// Digest returns the response digest (protocol §1): the SHA-256 of the RFC 8785 canonical form of the whole response, with
// method always present and result, error and the error's data only when set. The error wraps [ErrCanonical].
func (r *Response) Digest() ([32]byte, error) { return r.digest(numbersRFC8785) }

// VoteDigest returns the digest by which votes of nodes are compared: [Response.Digest] over a text in which each number is
// written as its sign, its digits without outer zeros and its decimal exponent, so that 1.0, 1 and 10e-1 agree while 9007199254740992 and
// 9007199254740993 do not (protocol §1). Zero has no sign. The cost is linear in the response's length, whatever the size of
// its numbers and exponents. The error wraps [ErrCanonical].
func (r *Response) VoteDigest() ([32]byte, error) { return r.digest(numbersExact) }

func (r *Response) digest(form numberForm) ([32]byte, error) {
	c := newCanonicalizer(form)
	defer c.free()
	if err := c.response(r); err != nil {
		return [32]byte{}, err
	}
	return sha256.Sum256(c.dst), nil
}

// response writes r's canonical text.
func (c *canonicalizer) response(r *Response) error {
	c.dst = append(c.dst, '{')
	if r.Error != nil {
		c.dst = append(c.dst, `"error":`...)
		if err := c.failure(r.Error); err != nil {
			return err
		}
		c.dst = append(c.dst, ',')
	}
	if err := c.quoted(`"id":`, r.ID); err != nil {
		return err
	}
	if err := c.quoted(`,"jsonrpc":"2.0","method":`, r.Method); err != nil {
		return err
	}
	if isSet(r.Result) {
		c.dst = append(c.dst, `,"result":`...)
		if err := c.append(r.Result); err != nil {
			return err
		}
	}
	c.dst = append(c.dst, '}')
	return nil
}

func (c *canonicalizer) failure(e *Error) error {
	c.dst = append(c.dst, `{"code":`...)
	code := number{}
	code, _ = parseNumber(appendInt(nil, e.Code))
	if c.form == numbersExact {
		c.dst = code.appendExact(c.dst)
	} else {
		c.dst = code.appendRFC8785(c.dst)
	}
	if isSet(e.Data) {
		c.dst = append(c.dst, `,"data":`...)
		if err := c.append(e.Data); err != nil {
			return err
		}
	}
	if err := c.quoted(`,"message":`, e.Message); err != nil {
		return err
	}
	c.dst = append(c.dst, '}')
	return nil
}

// quoted writes prefix and the JSON string of s.
func (c *canonicalizer) quoted(prefix, s string) (err error) {
	if c.dst, err = jsontext.AppendQuote(append(c.dst, prefix...), s); err != nil {
		return ErrCanonical
	}
	return nil
}

func orNull(v jsontext.Value) jsontext.Value {
	if v == nil {
		return jsontext.Value("null")
	}
	return v
}
