package jsonrpc

import (
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// IsBatch reports whether data is meant as a batch: its first byte that is not white space is '['.
func IsBatch(data []byte) bool {
	for _, b := range data {
		if !isSpace(b) {
			return b == '['
		}
	}
	return false
}

// SplitBatch returns the elements of a JSON array, as pieces of data. Only the text as a whole is checked: repeated names,
// lone surrogates and depth inside an element are left to that element's [DecodeRequest]. The error is a *DecodeError: the
// array is not JSON, or it has more than [MaxBatchElements] elements or levels that no parser can follow.
func SplitBatch(data []byte) ([]jsontext.Value, error) {
	if !utf8.Valid(data) {
		return nil, parseError(data, nil)
	}
	r := newObjectReader(data, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	defer r.free()
	if r.dec.PeekKind() != '[' {
		return nil, &DecodeError{Parse: !isJSON(data), Msg: "the batch is not a JSON array"}
	}
	elements, total, err := r.elements()
	switch {
	case err == nil && total > MaxBatchElements:
		return nil, &DecodeError{Msg: fmt.Sprintf("the batch has %d elements: send fewer", total)}
	case err == nil:
		return elements, nil
	}
	if deepest, _ := scanDepth(data); deepest > MaxDepth && isJSON(data) {
		return nil, &DecodeError{Msg: fmt.Sprintf("the batch is nested %d levels deep: use at most %d in an element", deepest, MaxDepth)}
	}
	return nil, parseError(data, err)
}

// elements reads the array that r is at, to the end of the text, and keeps the first MaxBatchElements elements.
func (r *objectReader) elements() (kept []jsontext.Value, total int, err error) {
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, 0, err
	}
	for r.dec.PeekKind() != ']' {
		piece, err := r.piece()
		if err != nil {
			return nil, 0, err
		}
		if total++; total <= MaxBatchElements {
			kept = append(kept, piece)
		}
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, 0, err
	}
	return kept, total, r.end()
}
