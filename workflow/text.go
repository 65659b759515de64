package workflow

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxQuoted bounds how many bytes of an outsider's value an error text repeats.
const maxQuoted = 40

// quoteShort quotes s for an error text, cut to maxQuoted bytes at a character's border and without control characters.
func quoteShort(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	cut := maxQuoted
	for cut > maxQuoted-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "…"
}

// textLength checks a free text's length in bytes.
func textLength(s string, limit int) error {
	if len(s) == 0 || len(s) > limit {
		return fmt.Errorf("%s has %d bytes, want 1 to %d", quoteShort(s), len(s), limit)
	}
	return nil
}

// bounded turns a JSON decoder's error into one short sentence about the sender's text: the library's wording and any
// Go type in it are none of the sender's business.
func bounded(err error) error {
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		where := quoteShort(string(syntax.JSONPointer))
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return fmt.Errorf("the member %s is there twice", where)
		}
		return fmt.Errorf("syntax error at byte %d", syntax.ByteOffset)
	}
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		if semantic.JSONPointer == "" {
			return errors.New("it is not an object")
		}
		return fmt.Errorf("%s is of the wrong type", quoteShort(string(semantic.JSONPointer)))
	}
	return errors.New("it cannot be decoded")
}
