package upstream

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// tokenFile is a bearer token in a file that others rotate.
type tokenFile struct {
	path string

	mu      sync.Mutex
	token   string
	modTime time.Time
	size    int64
}

// read returns the token as it is now. The file is looked at for every call,
// and read when its time or size differ: mounted secrets are replaced, not
// announced.
func (f *tokenFile) read() (string, error) {
	if f.path == "" {
		return "", nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	if f.token != "" && info.ModTime().Equal(f.modTime) && info.Size() == f.size {
		return f.token, nil
	}
	raw, err := os.ReadFile(f.path)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	token := strings.TrimSpace(string(raw))
	switch {
	case token == "":
		return "", errors.New("token file is empty")
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return "", errors.New("token file must hold one token and nothing else")
	}
	f.token, f.modTime, f.size = token, info.ModTime(), info.Size()
	return token, nil
}
