package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNewDir: a version records once, under its own name.
func TestNewDir(t *testing.T) {
	below, now := t.TempDir(), time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC)
	dir, err := newDir(below, "v1.2.0-4-gabc", now)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(below, "2026-12-01-v1.2.0-4-gabc"), dir)
	require.NoError(t, os.Mkdir(filepath.Join(below, "2026-11-30-v1.2.0-4-gabc"), 0o755))
	_, err = newDir(below, "v1.2.0-4-gabc", now)
	require.ErrorContains(t, err, "not recorded again")
	_, err = newDir(below, "v1.3.0-dirty", now)
	require.ErrorContains(t, err, "commit them first")
	_, err = newDir(below, "", now)
	require.ErrorContains(t, err, "-version is required")
}
