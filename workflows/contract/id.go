package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// MaxAccountKeyBytes is the longest account key that is accepted; records with
// a longer one are dead letters.
const MaxAccountKeyBytes = 512

// plainKey are the keys that stand in a workflow ID as they are. Databases
// behind Temporal fold case (MySQL), refuse NUL (PostgreSQL) and stop at 255
// characters, so everything else is hashed.
var plainKey = regexp.MustCompile(`^[a-z0-9._:@-]{1,180}$`)

// hashedPrefix marks a hashed key. A plain key that begins like it is hashed
// too, so that no two keys can share a workflow ID.
const hashedPrefix = "x-"

// AccountWorkflowID returns the ID of the one workflow that syncs the account.
// Different keys have different IDs, also in databases that fold case.
func AccountWorkflowID(pipeline, key string) string {
	if plainKey.MatchString(key) && !strings.HasPrefix(key, hashedPrefix) {
		return AccountWorkflowPrefix(pipeline) + key
	}
	sum := sha256.Sum256([]byte(key))
	return AccountWorkflowPrefix(pipeline) + hashedPrefix + hex.EncodeToString(sum[:])
}

// AccountWorkflowPrefix is what the IDs of all account workflows of a pipeline
// begin with.
func AccountWorkflowPrefix(pipeline string) string { return pipeline + "/account/" }

// ClockWorkflowID is the ID under which a bridge asks Temporal for the time.
func ClockWorkflowID(pipeline, instance string) string { return pipeline + "/clock/" + instance }
