// SPDX-License-Identifier: Apache-2.0

package nfmessages

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

func TestOutline(t *testing.T) {
	managed := func(family, table string) bool { return family != "inet" && table == "nat" }
	ask, left, err := Outline(readFile(t, "extra.nl"), binary.LittleEndian, managed)
	if err != nil {
		t.Fatal(err)
	}
	if want := (syntax.TableName{Family: "ip", Name: "nat"}); len(left) != 1 || left[0].TableName != want {
		t.Errorf("left %v, want %v", left, want)
	}
	var names []string
	for _, x := range ask {
		names = append(names, fmt.Sprint(x.Family, " ", x.Name, " ", x.Number, " ", x.Sets))
	}
	want := []string{"ip6 asleep 10 []", "ip filter 2 []", "inet extra 1 [{tomark 0 0}]"}
	if !reflect.DeepEqual(names, want) {
		t.Errorf("ask %q, want %q", names, want)
	}
}
