// Package page is what a person sees at STATUS_ADDR: one page that polls
// /status and shows it. It is embedded whole and fetches nothing from anywhere
// else, so it works where there is no way out.
//
// The page keeps what it has seen for its charts, for as long as it is open; the
// process keeps no history. /status is authoritative for everything on it.
package page

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed files
var files embed.FS

// Handler serves the page at / and its parts beside it.
func Handler() http.Handler {
	root, err := fs.Sub(files, "files")
	if err != nil {
		panic(err) // only for a name that is no path
	}
	server := http.FileServerFS(root)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Accounts and topics are other people's words: nothing that is not in
		// these files runs, whatever they hold.
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		// A process of another version must not meet the page of the one before.
		w.Header().Set("Cache-Control", "no-cache")
		server.ServeHTTP(w, r)
	})
}
