// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/json"
	"fmt"
)

// UnreadFile holds the reasons why files that the node has, or may have, could not be read: an object {"FILE":
// "REASON"}. Where it exists, the collector has tried to read every file: one that is neither in the snapshot nor in
// UnreadFile does not exist on the node (a kernel without IPVS has no ipvsadm.txt). A snapshot made by hand does not
// have it.
const UnreadFile = "unread.json"

// EncodeUnread returns the content of [UnreadFile] for the reasons by file.
func EncodeUnread(reasons map[string]string) []byte {
	if reasons == nil {
		reasons = map[string]string{}
	}
	data, err := json.MarshalIndent(reasons, "", "  ")
	if err != nil {
		panic(err) // a map of strings can always be encoded
	}
	return append(data, '\n')
}

// Unread returns why files of the node were not read, by their names; nil where there is no [UnreadFile], and empty
// where all existing files were read. The error is that of a damaged [UnreadFile].
func (n *Node) Unread() (map[string]string, error) {
	data, ok, err := n.File(UnreadFile)
	if err != nil || !ok {
		return nil, err
	}
	reasons := map[string]string{}
	if err := json.Unmarshal(data, &reasons); err != nil {
		return nil, ErrorOf(n.Name, fmt.Errorf("%s: %w", UnreadFile, err))
	}
	return reasons, nil
}
