// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"testing"
	"time"
)

func TestMinSyncPeriod(t *testing.T) {
	for name, c := range map[string]struct {
		configz string
		want    time.Duration
	}{
		"of iptables mode, which is the default": {
			`{"iptables":{"minSyncPeriod":"10s"},"nftables":{"minSyncPeriod":"2s"}}`, 10 * time.Second,
		},
		"of nftables mode": {
			`{"mode":"nftables","iptables":{"minSyncPeriod":"10s"},"nftables":{"minSyncPeriod":"2s"}}`, 2 * time.Second,
		},
		"of ipvs mode": {`{"mode":"ipvs","ipvs":{"minSyncPeriod":"1m0s"}}`, time.Minute},
		"of the internal type": {
			`{"Mode":"nftables","MinSyncPeriod":"3s","NFTables":{"MasqueradeBit":14}}`, 3 * time.Second,
		},
		"not set":               {`{"mode":"iptables"}`, 0},
		"zero, for its default": {`{"iptables":{"minSyncPeriod":"0s"}}`, 0},
		"that is no duration":   {`{"iptables":{"minSyncPeriod":"soon"}}`, 0},
		"that is a number":      {`{"iptables":{"minSyncPeriod":1000000000}}`, 0},
		"that is below zero":    {`{"iptables":{"minSyncPeriod":"-1s"}}`, 0},
	} {
		got, err := ParseConfigz([]byte(`{"kubeproxy.config.k8s.io":` + c.configz + `}`))
		if err != nil || got.MinSyncPeriod != c.want {
			t.Errorf("%s: %v, %v; want %v", name, got.MinSyncPeriod, err, c.want)
		}
	}
}
