// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// A plan arrives as it was sent: the plugin encodes it, the wire carries bytes, the helper decodes it.
func TestRequestTravels(t *testing.T) {
	sent := &plan.Plan{Name: "00000001", Services: []string{"shop/web"}, Mark: 1, Frontends: []plan.Frontend{{
		Port: "shop/web:http", Address: netip.MustParseAddrPort("10.96.0.1:80"), Protocol: "TCP",
		ForNode: plan.Destination{Endpoints: []netip.AddrPort{netip.MustParseAddrPort("10.244.1.1:8080")}},
	}}}
	encoded, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	options := wire.ProgramOptions{Mode: wire.NFTables, TTL: time.Minute, Run: "run", By: "someone", Follow: true}
	message, err := json.Marshal(wire.ProgramParams{Plan: encoded, ProgramOptions: options})
	if err != nil {
		t.Fatal(err)
	}
	var arrived wire.ProgramParams
	if err := json.Unmarshal(message, &arrived); err != nil {
		t.Fatal(err)
	}
	got, err := DecodeRequest(arrived)
	if err != nil {
		t.Fatal(err)
	}
	if want := (&Request{Plan: sent, ProgramOptions: options}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := got.Check(); err != nil {
		t.Error(err)
	}
}

func TestRequestErrors(t *testing.T) {
	options := `"mode":"nftables","ttl":60000000000,"run":"run","by":"someone"`
	for _, tt := range []struct{ name, message, want string }{
		{"no plan", `{` + options + `}`, "there is no plan"},
		{"a plan that is null", `{"plan":null,` + options + `}`, "there is no plan"},
		{"a plan that is not an object", `{"plan":7,` + options + `}`, "the parameters of the request cannot be read"},
		{"a plan without a name", `{"plan":{},` + options + `}`, "is not a name of a plan"},
	} {
		var params wire.ProgramParams
		if err := json.Unmarshal([]byte(tt.message), &params); err != nil {
			t.Fatal(err)
		}
		r, err := DecodeRequest(params)
		if err == nil {
			err = r.Check()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}
