package config

import (
	"encoding"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"
)

// Setting is one setting as `config` commands print it.
type Setting struct {
	Name    string `json:"name"` // environment variable
	Flag    string `json:"flag"`
	Value   string `json:"value"` // effective; secrets are redacted
	Default string `json:"default"`
	Help    string `json:"help"`

	secret bool
}

// Set is the settings of one command, bound to the struct they load into.
type Set struct {
	Flags    *flag.FlagSet // commands add flags of their own before Load
	Args     []string      // what Load found that is no flag
	settings []Setting
}

// Bind makes every setting in the structs that dst points to a flag of the
// returned set. A name that stands in two structs is one setting that loads into
// both. It panics on a field of a type that cannot be loaded: a mistake in the
// program.
func Bind(name string, dst ...any) *Set {
	set := &Set{Flags: flag.NewFlagSet(name, flag.ContinueOnError)}
	set.Flags.SetOutput(io.Discard) // errors are returned, usage is printed by the caller
	for _, d := range dst {
		set.bind(reflect.ValueOf(d).Elem())
	}
	return set
}

func (s *Set) bind(v reflect.Value) {
	for i := range v.NumField() {
		declared, value := v.Type().Field(i), v.Field(i)
		name, isSetting := declared.Tag.Lookup("env")
		if !isSetting {
			if value.Kind() == reflect.Struct && declared.IsExported() {
				s.bind(value)
			}
			continue
		}
		setting := Setting{
			Name: name,
			Flag: strings.ReplaceAll(strings.ToLower(name), "_", "-"),
			Help: declared.Tag.Get("help"),
		}
		if _, setting.secret = value.Interface().(Secret); setting.secret {
			setting.Help += " Or put it in a file and name that in " + name + "_FILE."
		}
		field := parse(value.Addr().Interface(), setting)
		if known := s.Flags.Lookup(setting.Flag); known != nil {
			shared := known.Value.(*shared)
			shared.fields = append(shared.fields, field)
			continue
		}
		s.Flags.Var(&shared{fields: []flag.Value{field}}, setting.Flag, setting.Help)
		setting.Default = field.String()
		s.settings = append(s.settings, setting)
	}
}

// parse returns what reads and writes one field, borrowing from the flag package
// how each type is written.
func parse(target any, setting Setting) flag.Value {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	switch t := target.(type) {
	case *Secret:
		return (*secret)(t)
	case *[]string:
		return (*list)(t)
	case *string:
		flags.StringVar(t, "v", *t, "")
	case *bool:
		flags.BoolVar(t, "v", *t, "")
	case *int:
		flags.IntVar(t, "v", *t, "")
	case *time.Duration:
		flags.DurationVar(t, "v", *t, "")
	case interface {
		encoding.TextUnmarshaler
		fmt.Stringer
	}:
		return text{t}
	default:
		panic(fmt.Sprintf("setting %s: type %T cannot be loaded", setting.Name, target))
	}
	return flags.Lookup("v").Value
}

// shared is one setting that loads into one field or several.
type shared struct{ fields []flag.Value }

func (s *shared) Set(value string) error {
	for _, field := range s.fields {
		if err := field.Set(value); err != nil {
			return err
		}
	}
	return nil
}

func (s *shared) String() string {
	if len(s.fields) == 0 { // the flag package asks a zero value
		return ""
	}
	return s.fields[0].String()
}

// IsBoolFlag lets a boolean stand without a value.
func (s *shared) IsBoolFlag() bool {
	boolean, ok := s.fields[0].(interface{ IsBoolFlag() bool })
	return ok && boolean.IsBoolFlag()
}

// Load fills the structs from the environment and then from args, and returns
// every malformed value at once. It returns [flag.ErrHelp] for -h and --help.
func (s *Set) Load(args []string, lookup func(string) (string, bool)) error {
	var faults []error
	for _, setting := range s.settings {
		value, ok, err := read(setting, lookup)
		switch {
		case err != nil:
			faults = append(faults, err)
		case ok && value != "": // empty is unset, as compose files and manifests expect
			if err := s.Flags.Set(setting.Flag, value); err != nil {
				faults = append(faults, Fault{Name: setting.Name, Value: value, Problem: reason(err)})
				// Back to the default, so that validation does not blame what a
				// half-read value left behind.
				_ = s.Flags.Set(setting.Flag, setting.Default)
			}
		}
	}
	for { // the flag package stops at the first fault and at what is no flag
		err := s.Flags.Parse(args)
		rest := s.Flags.Args()
		switch {
		case errors.Is(err, flag.ErrHelp):
			return err
		case err != nil:
			faults = append(faults, s.unknown(err))
			s.restore(args[:len(args)-len(rest)])
		case len(rest) == 0:
			return errors.Join(faults...)
		default:
			s.Args = append(s.Args, rest[0])
			rest = rest[1:]
		}
		args = rest
	}
}

// restore sets the last flag of those parsed back to its default: its value could
// not be read, and validation should not blame what that left behind.
func (s *Set) restore(parsed []string) {
	for i := len(parsed) - 1; i >= 0; i-- {
		name, _, _ := strings.Cut(strings.TrimLeft(parsed[i], "-"), "=")
		if f := s.Flags.Lookup(name); f != nil && strings.HasPrefix(parsed[i], "-") {
			_ = f.Value.Set(f.DefValue)
			return
		}
	}
}

// unknown makes the flag package's error about a flag that is not there name the
// one that was meant; other errors it returns as they are.
func (s *Set) unknown(err error) error {
	if value, ok := strings.CutSuffix(err.Error(), ": parse error"); ok {
		return fmt.Errorf("%s: %s", strings.Replace(value, "for flag -", "for --", 1), reason(errors.New("parse error")))
	}
	name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !ok {
		return err
	}
	var known []string
	s.Flags.VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })
	if len(known) > 0 {
		if nearest := nearest(name, known); slips(name, nearest) <= farthest {
			return fmt.Errorf("there is no flag --%s; did you mean --%s?", name, nearest)
		}
	}
	return fmt.Errorf("there is no flag --%s; --help lists all", name)
}

func read(setting Setting, lookup func(string) (string, bool)) (string, bool, error) {
	value, ok := lookup(setting.Name)
	if !setting.secret {
		return value, ok, nil
	}
	file, hasFile := lookup(setting.Name + "_FILE")
	switch {
	case !hasFile || file == "":
		return value, ok, nil
	case ok && value != "":
		return "", false, Fault{Name: setting.Name, Problem: "is set both itself and through " + setting.Name + "_FILE; unset one"}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", false, Fault{Name: setting.Name + "_FILE", Value: file, Problem: err.Error()}
	}
	return strings.TrimRight(string(content), "\r\n"), true, nil
}

// reason makes the flag package's shortest errors say what would be right.
func reason(err error) string {
	if err.Error() == "parse error" {
		return "cannot be read: want a whole number, true or false, or a duration such as 30s, as the setting needs"
	}
	return err.Error()
}

// Settings returns the settings with their effective values, in the order in
// which the structs declare them.
func (s *Set) Settings() []Setting {
	settings := make([]Setting, len(s.settings))
	for i, setting := range s.settings {
		setting.Value = s.Flags.Lookup(setting.Flag).Value.String()
		settings[i] = setting
	}
	return settings
}

// secret is a Secret as a flag value.
type secret Secret

func (s *secret) Set(value string) error { *s = secret(value); return nil }

func (s *secret) String() string { return Secret(*s).String() }

// list is a comma-separated list of words.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(value string) error {
	*l = nil
	for word := range strings.SplitSeq(value, ",") {
		if word = strings.TrimSpace(word); word != "" {
			*l = append(*l, word)
		}
	}
	return nil
}

// text lets anything with a text form be a flag.
type text struct {
	target interface {
		encoding.TextUnmarshaler
		fmt.Stringer
	}
}

func (t text) Set(value string) error { return t.target.UnmarshalText([]byte(value)) }

func (t text) String() string {
	if t.target == nil { // the flag package asks a zero value
		return ""
	}
	return t.target.String()
}
