// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
)

// cutLists cuts the output of two commands of ip -j, one behind the other; second is nil where there is one alone. A
// list begins on a line of its own, and within one there is a comma before another.
func cutLists(data []byte) (first, second []byte) {
	at := bytes.LastIndex(data, []byte("\n["))
	if at < 0 {
		return data, nil
	}
	if first = bytes.TrimRight(data[:at], " \t\r\n"); !bytes.HasSuffix(first, []byte("]")) {
		return data, nil
	}
	return first, data[at+1:]
}

// readRedirects reads what ip -j route show cache prints: the exceptions of routes for single destinations, of which a
// redirect of ICMP has another gateway than the route (ip_do_redirect in net/ipv4/route.c), or leads to the destination
// itself, which ip prints without a gateway for IPv6 (rt6_do_redirect in net/ipv6/route.c). A smaller path MTU keeps
// the route's; one that has both is not told apart for IPv6.
func (n *Network) readRedirects(data []byte, fam int) error {
	list, err := decode[struct {
		Dst     string            `json:"dst"`
		Gateway string            `json:"gateway"`
		Dev     string            `json:"dev"`
		Cache   []string          `json:"cache"`
		Metrics []json.RawMessage `json:"metrics"`
	}](data)
	if err != nil {
		return err
	}
	for i := range list {
		x := &list[i]
		if fam == 0 && !slices.Contains(x.Cache, "redirected") || fam != 0 && len(x.Metrics) > 0 {
			continue
		}
		dst, err := parseAddr(x.Dst)
		if err != nil {
			return err
		}
		gateway := dst
		if x.Gateway != "" {
			if gateway, err = parseAddr(x.Gateway); err != nil {
				return err
			}
		}
		f := &n.fam[fam]
		if f.redirected == nil {
			f.redirected = map[netip.Addr]map[string]netip.Addr{}
		}
		if f.redirected[dst] == nil {
			f.redirected[dst] = map[string]netip.Addr{}
		}
		f.redirected[dst][x.Dev] = gateway
	}
	return nil
}

// redirect has an answer lead where the kernel was told: an exception belongs to a next hop, and counts for packets
// that are forwarded, too (find_exception and rt_bind_exception in net/ipv4/route.c, rt6_find_cached_rt in
// net/ipv6/route.c). ip does not print which of several hops by an interface it belongs to.
func (f *family) redirect(r *Lookup, dst netip.Addr) {
	at := f.redirected[dst]
	if at == nil || r.Type != RouteUnicast {
		return
	}
	hops := r.NextHops()
	for i := range hops {
		h := &hops[i]
		switch gateway, ok := at[h.Dev]; {
		case !ok || !h.Gateway.IsValid() || gateway == h.Gateway:
		case len(hops) > 1:
			*r = Lookup{Why: "the kernel was told another gateway, " + gateway.String() + ", for one of the next hops " +
				"(ip route show cache)", Apart: true}
			return
		default:
			r.Gateway, r.By.redirected = gateway, gateway
		}
	}
}
