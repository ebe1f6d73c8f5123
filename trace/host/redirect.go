// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
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
// redirect of ICMP has another gateway than the route (ip_do_redirect in net/ipv4/route.c, rt6_do_redirect in
// net/ipv6/route.c). A smaller path MTU alone keeps the route's; ip tells the two apart for IPv4 alone.
func (n *Network) readRedirects(data []byte, fam int) error {
	list, err := decode[struct {
		Dst     string   `json:"dst"`
		Gateway string   `json:"gateway"`
		Dev     string   `json:"dev"`
		Cache   []string `json:"cache"`
	}](data)
	if err != nil {
		return err
	}
	for i := range list {
		x := &list[i]
		if x.Gateway == "" || fam == 0 && !slices.Contains(x.Cache, "redirected") {
			continue
		}
		dst, err := parseAddr(x.Dst)
		if err != nil {
			return err
		}
		gateway, err := parseAddr(x.Gateway)
		if err != nil {
			return err
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
// net/ipv6/route.c).
func (f *family) redirect(r *Lookup, dst netip.Addr) {
	at := f.redirected[dst]
	if at == nil || r.Type != RouteUnicast {
		return
	}
	hops := r.NextHops()
	for dev, gateway := range at { // of a route with several, that of another one may be told for its path MTU
		if slices.ContainsFunc(hops, func(h Hop) bool { return h.Dev == dev && h.Gateway == gateway }) {
			return
		}
	}
	if gateway, ok := at[r.Dev]; ok && len(r.Hops) == 0 {
		r.Gateway, r.By.redirected = gateway, gateway
	}
	r.Hops = slices.Clone(r.Hops)
	for i := range r.Hops {
		if gateway, ok := at[r.Hops[i].Dev]; ok {
			r.Hops[i].Gateway, r.By.redirected = gateway, gateway
		}
	}
}
