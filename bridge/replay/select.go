package replay

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// maxAccountBytes bounds the accounts of one replay: they stand in the
// workflow's input, and a payload may have 2 MB.
const maxAccountBytes = 1 << 20

// AccountList checks a list of accounts and returns it without repetitions, in its
// order.
func AccountList(accounts []string) ([]string, error) {
	seen := make(map[string]bool, len(accounts))
	var list []string
	var faults []error
	bytes := 0
	for _, account := range accounts {
		switch {
		case seen[account]:
			continue
		case account == "":
			faults = append(faults, errors.New("an account key is empty"))
		case len(account) > contract.MaxAccountKeyBytes:
			faults = append(faults, fmt.Errorf("account key %.40q… is longer than %d bytes", account, contract.MaxAccountKeyBytes))
		case !utf8.ValidString(account):
			faults = append(faults, fmt.Errorf("account key %q is not valid UTF-8", account))
		}
		seen[account] = true
		list = append(list, account)
		bytes += len(account) + 3
	}
	if bytes > maxAccountBytes {
		faults = append(faults, fmt.Errorf("%d accounts are too many for one replay: make several of at most %d", len(list), len(list)*maxAccountBytes/bytes))
	}
	return list, errors.Join(faults...)
}

// ReadAccounts reads one account key a line; empty lines are skipped.
func ReadAccounts(r io.Reader) ([]string, error) {
	var accounts []string
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if line := strings.TrimSuffix(lines.Text(), "\r"); line != "" {
			accounts = append(accounts, line)
		}
	}
	return accounts, lines.Err()
}

// ParseRange reads TOPIC/PARTITION/FROM-TO, both offsets included.
func ParseRange(text string) (contract.ReplayRange, error) {
	fault := fmt.Errorf("%q is no range of records: want TOPIC/PARTITION/FROM-TO, such as changes/0/100-199", text)
	parts := strings.Split(text, "/")
	if len(parts) != 3 || parts[0] == "" {
		return contract.ReplayRange{}, fault
	}
	from, to, found := strings.Cut(parts[2], "-")
	partition, errP := strconv.ParseInt(parts[1], 10, 32)
	first, errF := strconv.ParseInt(from, 10, 64)
	last, errL := strconv.ParseInt(to, 10, 64)
	if !found || errors.Join(errP, errF, errL) != nil || partition < 0 || first < 0 || last < first {
		return contract.ReplayRange{}, fault
	}
	return contract.ReplayRange{Topic: parts[0], Partition: int32(partition), From: first, To: last + 1}, nil
}
