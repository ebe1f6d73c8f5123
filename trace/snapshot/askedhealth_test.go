// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/json"
	"reflect"
	"testing"
)

// answeredHealth is what a helper sends.
const answeredHealth = `{"list":[{"at":"10.77.0.11:31000","code":503,"kubeProxy":true,"service":"shop/web",` +
	`"serviceProxyHealthy":false},{"at":"[fd00:77::11]:31000","error":"no answer in time"}]}`

// FuzzParseHealthAnswers: whatever a helper sends is read or refused, and what is read is the same once it is written.
func FuzzParseHealthAnswers(f *testing.F) {
	f.Add([]byte(answeredHealth))
	f.Add([]byte(`{"list":[{"at":"x"}]}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ParseHealthAnswers(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := ParseHealthAnswers(again); err != nil || !reflect.DeepEqual(got, back) {
			t.Errorf("%+v became %+v: %v", got, back, err)
		}
	})
}

// What a helper answers is read as it was sent; what is no answer is an error.
func TestParseHealthAnswers(t *testing.T) {
	got, err := ParseHealthAnswers([]byte(answeredHealth))
	if err != nil || len(got.List) != 2 {
		t.Fatalf("%+v %v", got, err)
	}
	a, b := &got.List[0], &got.List[1]
	if a.At.String() != "10.77.0.11:31000" || a.Code != 503 || !a.KubeProxy || a.Healthy == nil || *a.Healthy {
		t.Errorf("%+v", a)
	}
	if b.At.Addr().Is4() || b.Code != 0 || b.Healthy != nil || b.Error == "" {
		t.Errorf("%+v", b)
	}
	if _, err := ParseHealthAnswers([]byte(`{"list":7}`)); err == nil {
		t.Error("a number is taken for a list")
	}
}
