// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"maps"
	"strings"
	"testing"
)

func TestUnread(t *testing.T) {
	want := map[string]string{"ipset-save.txt": "ipset: Kernel error received: Operation not permitted"}
	got, err := NewNode("n", map[string][]byte{UnreadFile: EncodeUnread(want)}).Unread()
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("read back as %v, %v", got, err)
	}
	if got, err := NewNode("n", nil).Unread(); got != nil || err != nil {
		t.Errorf("without the file: %v, %v", got, err)
	}
	if got, err := NewNode("n", map[string][]byte{UnreadFile: EncodeUnread(nil)}).Unread(); got == nil ||
		len(got) != 0 || err != nil {
		t.Errorf("all read: %v, %v", got, err)
	}
	_, err = NewNode("n", map[string][]byte{UnreadFile: []byte("[]")}).Unread()
	if err == nil || !strings.Contains(err.Error(), "node n: unread.json: ") {
		t.Errorf("a list in its place: %v", err)
	}
}
