// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/json"
	"reflect"
	"testing"
)

// followed is what a helper sends.
const followed = `{"sights":[{"flow":0,"how":"in","interface":"eth0","count":2},{"flow":0,"pod":"shop/web","how":` +
	`"dropped","reason":"NETFILTER_DROP","function":"nf_hook_slow","count":1}],"pods":{"shop/web":""}}`

// FuzzParseFollowed: whatever a helper sends is read or refused, and what is read is the same once it is written.
func FuzzParseFollowed(f *testing.F) {
	f.Add([]byte(followed))
	f.Add([]byte(`{"sights":[{"flow":"x"}]}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ParseFollowed(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseFollowed(again)
		if err != nil || len(got.Sights) > 0 && !reflect.DeepEqual(got.Sights, back.Sights) {
			t.Errorf("%+v became %+v: %v", got, back, err)
		}
	})
}

// What a helper says is read as it was sent; what is something else is an error.
func TestParseFollowed(t *testing.T) {
	got, err := ParseFollowed([]byte(followed))
	want := &Followed{
		Sights: []Sight{
			{How: SightIn, Interface: "eth0", Count: 2},
			{Pod: "shop/web", How: SightDropped, Reason: "NETFILTER_DROP", Function: "nf_hook_slow", Count: 1},
		},
		Pods: map[string]string{"shop/web": ""},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := ParseFollowed([]byte(`{"sights":7}`)); err == nil {
		t.Error("a number is taken for a list")
	}
}
