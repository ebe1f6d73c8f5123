// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/program"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// errNoRoot says why nothing of the node's file system can be read.
var errNoRoot = errors.New("the node's file system is not accessible")

// readJournal lists the journal. With what was in it before the rules were read: a path that begins or ends meanwhile
// has a record in one of the two, so that its rules are not taken for left over.
func readJournal(_ context.Context, r *reader) ([]byte, error) {
	if r.Root == "" {
		return nil, errNoRoot
	}
	if r.journalErr != nil {
		return nil, r.journalErr
	}
	now, err := program.Listing(r.Root)
	if err != nil {
		return nil, err
	}
	if r.journal != nil {
		now.More += r.journal.More
		for _, old := range r.journal.Records {
			if !slices.ContainsFunc(now.Records, func(n snapshot.JournalRecord) bool { return n.Plan == old.Plan }) {
				now.Records = append(now.Records, old)
			}
		}
	}
	return json.Marshal(now)
}
