// Package config loads the settings of a process into plain structs.
//
// A component keeps its settings in a struct beside its code. A field is a
// setting if it carries two tags:
//
//	Executors int `env:"EXECUTORS" help:"Lanes that signal Temporal."`
//
// which makes it the environment variable EXECUTORS and the flag --executors;
// the flag wins. What the struct holds before loading is the default. Nested
// structs are loaded too. A [Secret] NAME can also come from the file that
// NAME_FILE names.
//
// Loading finds every malformed value, Validate methods every impossible one;
// both report them all at once.
package config
