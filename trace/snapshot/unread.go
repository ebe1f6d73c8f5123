// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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
	if reasons == nil {
		return nil, ErrorOf(n.Name, fmt.Errorf("%s: it holds null, not an object", UnreadFile))
	}
	known := func(file string) bool { return slices.Contains(NodeFiles, file) || slices.Contains(PodFiles, file) }
	// An error page in JSON must not make all that is missing count as absent from the node.
	if names := slices.Sorted(maps.Keys(reasons)); len(names) > 0 && !slices.ContainsFunc(names, known) {
		return nil, ErrorOf(n.Name, fmt.Errorf("%s: it names %q, which is not a file of a node", UnreadFile, names[0]))
	}
	return reasons, nil
}
