package main

import (
	"context"
	"fmt"
)

// dial stands for the generated client and its connection.
func dial() func(context.Context, string) ([]byte, int64, error) {
	return func(_ context.Context, id string) ([]byte, int64, error) {
		return nil, 0, fmt.Errorf("%q: %w", id, errNoSuchAccount)
	}
}
