// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/json"
	"fmt"
)

// UnreadFile holds, of each file that the node has, or may have, and that could not be read, why: an object {"FILE":
// "REASON"}. Where it is, whoever made the snapshot has tried everything: a file that is neither there nor in it has
// nothing to be read from (a kernel without IPVS has no ipvsadm.txt). A person who makes a snapshot by hand leaves it
// out.
const UnreadFile = "unread.json"

// EncodeUnread makes the content of [UnreadFile] of the reasons by file.
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

// Unread says why files of the node were not read, by their names; nil where the snapshot does not tell, and empty
// where all were read that there are. The error is that of a damaged [UnreadFile].
func (n *Node) Unread() (map[string]string, error) {
	data, ok, err := n.File(UnreadFile)
	if err != nil || !ok {
		return nil, err
	}
	reasons := map[string]string{}
	if err := json.Unmarshal(data, &reasons); err != nil {
		return nil, fmt.Errorf("node %s: %s: %w", n.Name, UnreadFile, err)
	}
	return reasons, nil
}
