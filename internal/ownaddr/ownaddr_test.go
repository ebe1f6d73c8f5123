// SPDX-License-Identifier: Apache-2.0

package ownaddr_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/ownaddr"
)

func TestList(t *testing.T) {
	got, err := ownaddr.List()
	if err != nil || !slices.Contains(got, netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("%v %v", got, err)
	}
}
