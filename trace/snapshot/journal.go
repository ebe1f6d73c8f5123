// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/json"
	"fmt"
	"time"
)

// JournalFile lists what the command program has recorded on the node, as [Journal] in JSON. Where it is, rules of that
// command without a record are left over; a snapshot made by hand has no such file.
const JournalFile = "journal.json"

// Journal is the content of [JournalFile].
type Journal struct {
	Records []JournalRecord `json:"records"`
	// More counts the records that are not listed as there are too many: then a missing one proves nothing.
	More int `json:"more,omitempty"`
}

// JournalRecord is one record of the journal.
type JournalRecord struct {
	// Plan is the name of the plan, which the names of its chains and tables contain: eight hexadecimal digits. It is that
	// of the record's file.
	Plan string `json:"plan"`
	// Mode, Expires, Frontends ("10.96.0.10:80/TCP") and MoreFrontends, the number of those that are not listed, are of a
	// record that can be read. Unread is why it cannot.
	Mode          string    `json:"mode,omitempty"`
	Expires       time.Time `json:"expires,omitzero"`
	Frontends     []string  `json:"frontends,omitempty"`
	MoreFrontends int       `json:"moreFrontends,omitempty"`
	Unread        string    `json:"unread,omitempty"`
}

// Has tells whether there may be a record of a plan.
func (j *Journal) Has(plan string) bool {
	for i := range j.Records {
		if j.Records[i].Plan == plan {
			return true
		}
	}
	return j.More > 0
}

// HasMode tells whether there may be a record of a mode.
func (j *Journal) HasMode(mode string) bool {
	for i := range j.Records {
		if r := &j.Records[i]; r.Mode == mode || r.Unread != "" {
			return true
		}
	}
	return j.More > 0
}

// Journal reads [JournalFile]; nil where it was not collected. The error is that of a damaged file.
func (n *Node) Journal() (*Journal, error) {
	data, ok, err := n.File(JournalFile)
	if err != nil || !ok {
		return nil, err
	}
	var j Journal
	if err := json.Unmarshal(data, &j); err != nil {
		return nil, ErrorOf(n.Name, fmt.Errorf("%s: %w", JournalFile, err))
	}
	if j.Records == nil {
		return nil, ErrorOf(n.Name, fmt.Errorf("%s: it has no list of records", JournalFile))
	}
	return &j, nil
}
