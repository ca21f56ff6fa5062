package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"cloud.google.com/go/spanner"
)

// column is a column of Accounts that is filled from the payload.
type column struct {
	name string
	path []string
	kind string // Spanner's type without a length; "" until [Store.Check]
	full string // with it
	most int    // characters that a STRING holds; 0 for the most that there is
}

// ofType returns the column with its type in the database, "STRING(20)".
func (c column) ofType(full string) column {
	c.full = full
	var length string
	c.kind, length, _ = strings.Cut(full, "(")
	c.most, _ = strconv.Atoi(strings.TrimSuffix(length, ")")) // MAX is no number
	return c
}

// mappable are the types that a mapped column may have.
var mappable = []string{"STRING", "INT64", "FLOAT64", "BOOL", "TIMESTAMP", "DATE", "NUMERIC", "JSON"}

var errWrongType = errors.New("wrong type")

// values returns what the columns hold for payload: NULL where the field is
// missing or null. A nil payload is NULL throughout.
func values(columns []column, payload []byte) ([]any, error) {
	if len(columns) == 0 {
		return nil, nil
	}
	var root any
	if payload != nil {
		// Numbers stay text: an INT64 beyond 2^53 must not pass through a float.
		decoder := json.NewDecoder(bytes.NewReader(payload))
		decoder.UseNumber()
		if err := decoder.Decode(&root); err != nil {
			return nil, refused("write row", "payload is not JSON")
		}
	}
	out := make([]any, len(columns))
	for i, c := range columns {
		v, err := c.value(lookup(root, c.path))
		if err != nil {
			return nil, refused("write row", fmt.Sprintf("field %s does not fit column %s %s", strings.Join(c.path, "."), c.name, c.full))
		}
		out[i] = v
	}
	return out, nil
}

func lookup(v any, path []string) any {
	for _, name := range path {
		object, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = object[name]
	}
	return v
}

// value converts a decoded JSON value; the payload's types must be the
// column's, nothing is guessed.
func (c column) value(v any) (any, error) {
	switch c.kind {
	case "STRING":
		if v == nil {
			return spanner.NullString{}, nil
		}
		if s, ok := v.(string); ok && (c.most == 0 || utf8.RuneCountInString(s) <= c.most) {
			return s, nil
		}
	case "BOOL":
		if v == nil {
			return spanner.NullBool{}, nil
		}
		if b, ok := v.(bool); ok {
			return b, nil
		}
	case "INT64":
		if v == nil {
			return spanner.NullInt64{}, nil
		}
		if n, ok := v.(json.Number); ok {
			return strconv.ParseInt(n.String(), 10, 64)
		}
	case "FLOAT64":
		if v == nil {
			return spanner.NullFloat64{}, nil
		}
		if n, ok := v.(json.Number); ok {
			return n.Float64()
		}
	case "TIMESTAMP":
		if v == nil {
			return spanner.NullTime{}, nil
		}
		if s, ok := v.(string); ok {
			return time.Parse(time.RFC3339Nano, s)
		}
	case "DATE": // on the wire, dates and decimals are strings
		if v == nil {
			return spanner.NullString{}, nil
		}
		if s, ok := v.(string); ok {
			_, err := time.Parse(time.DateOnly, s)
			return s, err
		}
	case "NUMERIC":
		if v == nil {
			return spanner.NullString{}, nil
		}
		if n, ok := v.(json.Number); ok {
			return decimal(n.String())
		}
		if s, ok := v.(string); ok { // as APIs write money
			return decimal(s)
		}
	case "JSON":
		return spanner.NullJSON{Value: v, Valid: v != nil}, nil
	}
	return nil, errWrongType
}

// decimalText is a decimal fraction, with digits that NUMERIC can hold.
var decimalText = regexp.MustCompile(`^-?\d{1,29}(\.\d{1,9})?$`)

// decimal checks what NUMERIC would round or could not hold.
func decimal(s string) (string, error) {
	if !decimalText.MatchString(s) {
		return "", errWrongType
	}
	return s, nil
}
