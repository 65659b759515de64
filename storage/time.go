package storage

import (
	"database/sql/driver"
	"fmt"
	"time"
)

// timeLayout is how times are stored on SQLite: 23 characters in UTC, so that the order of texts is that of times. PostgreSQL reads the same
// text in its own zone, which is UTC on every connection of a [DB].
const timeLayout = "2006-01-02 15:04:05.000"

// Time is a moment as the database holds it: to the millisecond, in UTC, in the years 1 to 9999. It is text on SQLite and timestamptz on
// PostgreSQL, see {{.Time}} of [Domain]. Scanning NULL is an error; use sql.Null[Time] where it can occur.
//
// A time.Time given to SQLite would be stored in a form that sorts wrongly.
type Time struct{ time.Time }

// NewTime returns t as the database will give it back: what is below a millisecond is cut off.
func NewTime(t time.Time) Time { return Time{t.UTC().Truncate(time.Millisecond)} }

// Value implements driver.Valuer.
func (t Time) Value() (driver.Value, error) {
	u := t.UTC()
	if u.Year() < 1 || u.Year() > 9999 {
		return nil, fmt.Errorf("storage: the time %s is not in the years 1 to 9999", u)
	}
	return u.Format(timeLayout), nil
}

// Scan implements sql.Scanner.
func (t *Time) Scan(src any) error {
	switch v := src.(type) {
	case time.Time:
		*t = NewTime(v)
		return nil
	case string:
		return t.parse(v)
	case []byte:
		return t.parse(string(v))
	default:
		return fmt.Errorf("storage: a time cannot be read from %T", src)
	}
}

func (t *Time) parse(text string) error {
	parsed, err := time.Parse(timeLayout, text)
	if err != nil || parsed.Format(timeLayout) != text { // Parse takes a comma for the point
		return fmt.Errorf("storage: %.40q is not a time of the form %s", text, timeLayout)
	}
	t.Time = parsed
	return nil
}
