package query

import (
	"fmt"

	"github.com/go-json-experiment/json"
)

// MaxCursor is the longest JSON form of a page that is taken, in bytes.
const MaxCursor = 16 << 10

// cursor is the JSON form of a page. A page that was read loses what it learnt: hand out its Next or Prev.
type cursor struct {
	Strategy string     `json:"strategy"`
	Offset   int64      `json:"offset,omitzero"`
	Size     int64      `json:"size,omitzero"`
	Sort     string     `json:"sort,omitzero"`  // what After belongs to
	After    *[2]string `json:"after,omitzero"` // key and id of the row before the page
}

// MarshalJSON returns the page as a cursor. It fails with [ErrPage] for a page of a size or offset that would not be taken back.
func (p Pagination) MarshalJSON() ([]byte, error) {
	if err := p.check(true); err != nil {
		return nil, err
	}
	c := cursor{Strategy: p.strategy.String(), Offset: p.offset, Size: p.size}
	if p.after != nil {
		c.Sort, c.After = p.after.sort, &[2]string{p.after.key, p.after.id}
	}
	return json.Marshal(c)
}

// UnmarshalJSON is [ParsePagination].
func (p *Pagination) UnmarshalJSON(data []byte) error {
	parsed, err := ParsePagination(data)
	if err == nil {
		*p = parsed
	}
	return err
}

// ParsePagination reads the JSON form of a page, from anybody: one object of known members, each at most once, which fit together; at most
// [MaxCursor] bytes. Anything else is [ErrCursor], and a size or offset out of range [ErrPage]. Whoever changes a cursor moves in the same
// listing only: its filter is not in there. An unbounded page is taken here and refused by Paginate.
func ParsePagination(data []byte) (Pagination, error) {
	if len(data) > MaxCursor {
		return Pagination{}, fmt.Errorf("%w: longer than %d bytes", ErrCursor, MaxCursor)
	}
	var c cursor
	if err := json.Unmarshal(data, &c, json.RejectUnknownMembers(true)); err != nil {
		return Pagination{}, fmt.Errorf("%w: %w", ErrCursor, err)
	}
	p := Pagination{offset: c.Offset, size: c.Size}
	switch c.Strategy {
	case "none":
		p.strategy = Unbounded
	case "empty":
		p.strategy = Empty
	case "offset":
		p.strategy = ByOffset
	case "keyset":
		p.strategy = ByKeyset
	default:
		return Pagination{}, fmt.Errorf("%w: unknown strategy %q", ErrCursor, c.Strategy)
	}
	numbers := p.strategy == ByOffset || p.strategy == ByKeyset
	switch {
	case !numbers && (c.Offset != 0 || c.Size != 0):
		return Pagination{}, fmt.Errorf("%w: strategy %s has neither size nor offset", ErrCursor, c.Strategy)
	case c.After == nil && c.Sort != "":
		return Pagination{}, fmt.Errorf("%w: sort without after", ErrCursor)
	case c.After != nil && (p.strategy != ByKeyset || c.Sort == "" || len(c.Sort) > maxKeyText):
		return Pagination{}, fmt.Errorf("%w: after without sort, or with strategy %s", ErrCursor, c.Strategy)
	case c.After != nil && !(goodKeyText(c.After[0]) && goodKeyText(c.After[1])):
		return Pagination{}, fmt.Errorf("%w: a value is longer than %d bytes or holds a zero byte", ErrCursor, maxKeyText)
	case c.After != nil:
		p.after = &position{c.Sort, c.After[0], c.After[1]}
	}
	if err := p.check(true); err != nil {
		return Pagination{}, err
	}
	return p, nil
}

func refused(why string) error { return fmt.Errorf("%w: %s", ErrPage, why) }
