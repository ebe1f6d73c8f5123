// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sysctls are the settings that decide on Service traffic, as patterns below /proc/sys/net.
var sysctls = []string{
	"ipv4/ip_forward", "ipv4/ip_nonlocal_bind", "ipv4/ip_local_port_range", "ipv4/ip_local_reserved_ports",
	"ipv4/fwmark_reflect", "ipv4/tcp_fwmark_accept", "ipv4/ip_default_ttl", "ipv6/conf/*/hop_limit",
	"ipv4/conf/*/forwarding", "ipv4/conf/*/rp_filter", "ipv4/conf/*/route_localnet", "ipv4/conf/*/accept_local",
	"ipv4/conf/*/src_valid_mark", "ipv4/conf/*/arp_ignore", "ipv4/conf/*/arp_filter",
	"ipv4/conf/all/arp_announce", "ipv4/conf/*/proxy_arp", "ipv4/conf/*/proxy_arp_pvlan", "ipv4/conf/*/medium_id",
	"ipv4/fib_multipath_hash_policy", "ipv6/fib_multipath_hash_policy",
	"ipv6/conf/*/forwarding", "ipv6/conf/*/force_forwarding", "ipv6/conf/*/mtu", "ipv6/conf/*/use_tempaddr",
	"ipv6/conf/*/disable_ipv6", "ipv6/conf/*/proxy_ndp", "ipv6/ip_nonlocal_bind",
	"ipv4/neigh/*/mcast_solicit", "ipv6/neigh/*/mcast_solicit", "ipv4/neigh/*/app_solicit", "ipv6/neigh/*/app_solicit",
	"ipv4/neigh/*/proxy_delay",
	"ipv4/conf/*/disable_xfrm", "ipv4/conf/*/disable_policy",
	"bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-ip6tables", "bridge/bridge-nf-call-arptables",
	"netfilter/nf_conntrack_*", "ipv4/vs/*",
}

func readSysctl(_ context.Context, _ *reader) ([]byte, error) {
	const root = "/proc/sys/net/"
	var out bytes.Buffer
	seen, folders := map[string]bool{}, map[string][]string{}
	for _, pattern := range sysctls {
		files, err := settingsOf(root, pattern, folders)
		if err != nil {
			return nil, err
		}
		slices.Sort(files)
		for _, f := range files {
			if seen[f] {
				continue
			}
			seen[f] = true
			data, err := os.ReadFile(f)
			if err != nil {
				continue // some can only be written
			}
			fmt.Fprintf(&out, "net/%s=%s\n", strings.TrimPrefix(f, root), strings.TrimSpace(string(data)))
		}
	}
	if out.Len() == 0 {
		return nil, fmt.Errorf("%s has none of the settings: it is not mounted", root)
	}
	return out.Bytes(), nil
}

// settingsOf returns the files of a pattern, which may not be there. What is of each interface is listed once, in
// folders: to look for each file first takes longer than to read what there is.
func settingsOf(root, pattern string, folders map[string][]string) (files []string, err error) {
	folder, setting, each := strings.Cut(pattern, "/*/")
	if !each {
		return filepath.Glob(root + pattern)
	}
	names, known := folders[folder]
	if !known {
		entries, err := os.ReadDir(root + folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // without IPv6 there is none
			return nil, err
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		folders[folder] = names
	}
	for _, name := range names {
		files = append(files, root+folder+"/"+name+"/"+setting)
	}
	return files, nil
}
