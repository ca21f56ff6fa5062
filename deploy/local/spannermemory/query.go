package spannermemory

import (
	"fmt"
	"regexp"
	"strings"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// shape is the form of query that is understood: columns or conditions of one
// view, where conditions hold. ORDER BY is taken as the order rows have anyway.
var shape = regexp.MustCompile(`(?is)^\s*SELECT\s+(.+?)\s+FROM\s+INFORMATION_SCHEMA\.(\w+)(?:\s+WHERE\s+(.+?))?(?:\s+ORDER\s+BY\s+ORDINAL_POSITION)?\s*$`)

var (
	and       = regexp.MustCompile(`(?i)\s+AND\s+`)
	isNull    = regexp.MustCompile(`(?i)^(\w+)\s+IS\s+NULL$`)
	equals    = regexp.MustCompile(`^(\S+)\s*=\s*(\S+)$`)
	lower     = regexp.MustCompile(`(?i)^LOWER\((.+)\)$`)
	literal   = regexp.MustCompile(`^'([^']*)'$`)
	column    = regexp.MustCompile(`^\w+$`)
	parameter = regexp.MustCompile(`^@\w+$`)
)

// query answers a query of the known shape. Selected expressions are a column,
// of type STRING, or conditions joined by AND, of type BOOL.
func (s *schema) query(sql string, params *structpb.Struct) (*spannerpb.PartialResultSet, error) {
	parts := shape.FindStringSubmatch(sql)
	if parts == nil {
		return nil, fmt.Errorf("cannot answer %q", sql)
	}
	rows, err := s.view(strings.ToUpper(parts[2]))
	if err != nil {
		return nil, err
	}
	selected := strings.Split(parts[1], ",")
	result := &spannerpb.PartialResultSet{Metadata: &spannerpb.ResultSetMetadata{RowType: &spannerpb.StructType{}}}
	for i, expression := range selected {
		selected[i] = strings.TrimSpace(expression)
		field := &spannerpb.StructType_Field{Type: &spannerpb.Type{Code: spannerpb.TypeCode_BOOL}}
		if column.MatchString(selected[i]) {
			field.Name, field.Type.Code = selected[i], spannerpb.TypeCode_STRING
		}
		result.Metadata.RowType.Fields = append(result.Metadata.RowType.Fields, field)
	}
	for _, row := range rows {
		if parts[3] != "" {
			holds, err := row.holds(parts[3], params)
			if err != nil {
				return nil, err
			}
			if !holds {
				continue
			}
		}
		for _, expression := range selected {
			value, err := row.value(expression, params)
			if err != nil {
				return nil, err
			}
			result.Values = append(result.Values, value)
		}
	}
	return result, nil
}

// value evaluates a selected expression.
func (r record) value(expression string, params *structpb.Struct) (*structpb.Value, error) {
	if !column.MatchString(expression) {
		holds, err := r.holds(expression, params)
		return structpb.NewBoolValue(holds), err
	}
	operand, err := r.operand(expression, params)
	if err != nil || operand == nil {
		return structpb.NewNullValue(), err
	}
	return structpb.NewStringValue(*operand), nil
}

// holds evaluates conditions joined by AND; NULL equals nothing.
func (r record) holds(conditions string, params *structpb.Struct) (bool, error) {
	all := true
	for _, condition := range and.Split(strings.TrimSpace(conditions), -1) {
		condition = strings.TrimSpace(condition)
		if m := isNull.FindStringSubmatch(condition); m != nil {
			operand, err := r.operand(m[1], params)
			if err != nil {
				return false, err
			}
			all = all && operand == nil
			continue
		}
		m := equals.FindStringSubmatch(condition)
		if m == nil {
			return false, fmt.Errorf("cannot evaluate %q", condition)
		}
		left, err := r.operand(m[1], params)
		if err != nil {
			return false, err
		}
		right, err := r.operand(m[2], params)
		if err != nil {
			return false, err
		}
		all = all && left != nil && right != nil && *left == *right
	}
	return all, nil
}

// operand evaluates a literal, a parameter, a column, or LOWER of one.
func (r record) operand(expression string, params *structpb.Struct) (*string, error) {
	if m := lower.FindStringSubmatch(expression); m != nil {
		operand, err := r.operand(m[1], params)
		if err != nil || operand == nil {
			return nil, err
		}
		return text(strings.ToLower(*operand)), nil
	}
	if m := literal.FindStringSubmatch(expression); m != nil {
		return &m[1], nil
	}
	if parameter.MatchString(expression) {
		value, ok := params.GetFields()[expression[1:]]
		if !ok {
			return nil, fmt.Errorf("no parameter %s", expression)
		}
		return text(value.GetStringValue()), nil
	}
	if value, ok := r[strings.ToUpper(expression)]; ok {
		return value, nil
	}
	return nil, fmt.Errorf("cannot evaluate %q", expression)
}
