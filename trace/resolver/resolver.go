// SPDX-License-Identifier: Apache-2.0

// Package resolver reads a pod's resolv.conf, and says what its C library asks for a name: the name servers, and the
// names that the search list makes of it. It asks nobody.
package resolver

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Config is a resolv.conf, as glibc and musl read it.
type Config struct {
	Servers []netip.Addr // in the order in which glibc asks them; musl asks all at once
	Search  []string     // without the dots at their ends
	Ndots   int
	TCP     bool // glibc asks over TCP at once (use-vc)
	// NoServer says that the file names none: both libraries ask 127.0.0.1 then, which Servers has.
	NoServer bool
}

// What the libraries keep of a file (MAXNS and RES_MAXNDOTS in glibc's resolv/bits/types/res_state.h and
// resolv/resolv.h; MAXNS in musl's src/network/lookup.h, __get_resolv_conf in its resolvconf.c).
const (
	maxServers   = 3
	maxNdots     = 15
	defaultNdots = 1
)

// Parse reads the text of a resolv.conf. The last of the lines search and domain counts (res_vinit_1 in glibc's
// resolv/res_init.c); a line that neither library understands is passed over, as they do.
func Parse(data []byte) (*Config, error) {
	c := &Config{Ndots: defaultNdots}
	number := 0
	for line := range bytes.Lines(data) {
		number++
		if !utf8.Valid(line) || bytes.IndexByte(line, 0) >= 0 {
			return nil, fmt.Errorf("line %d is not text", number)
		}
		if at := bytes.IndexAny(line, "#;"); at >= 0 {
			line = line[:at]
		}
		f := strings.Fields(string(line))
		if len(f) < 2 || !bytes.HasPrefix(line, []byte(f[0])) { // a keyword begins its line (MATCH in res_init.c)
			continue
		}
		switch f[0] {
		case "nameserver":
			if a, err := netip.ParseAddr(f[1]); err == nil && len(c.Servers) < maxServers {
				c.Servers = append(c.Servers, a.Unmap().WithZone(""))
			}
		case "domain", "search":
			c.Search = nil
			for _, s := range f[1:] {
				if s = strings.TrimSuffix(s, "."); s != "" && (f[0] == "search" || len(c.Search) == 0) {
					c.Search = append(c.Search, s)
				}
			}
		case "options":
			c.options(f[1:])
		}
	}
	if len(c.Servers) == 0 {
		c.Servers, c.NoServer = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, true
	}
	return c, nil
}

func (c *Config) options(words []string) {
	for _, w := range words {
		if text, ok := strings.CutPrefix(w, "ndots:"); ok {
			if n, err := strconv.Atoi(text); err == nil && n >= 0 {
				c.Ndots = min(n, maxNdots)
			}
		}
		if w == "use-vc" {
			c.TCP = true
		}
	}
}

// Glibc returns the names that glibc asks for a name, in this order, until one is answered: one with as many dots as
// ndots is asked as it is first, and with the search list then; any other the other way round (__res_context_search in
// resolv/res_query.c).
func (c *Config) Glibc(name string) []string {
	if absolute, ok := strings.CutSuffix(name, "."); ok {
		return []string{absolute}
	}
	list := c.searched(name)
	if strings.Count(name, ".") >= c.Ndots {
		return append([]string{name}, list...)
	}
	return append(list, name)
}

// Musl returns what musl asks for a name: one with as many dots as ndots is asked as it is, and no other way
// (name_from_dns_search in src/network/lookup_name.c).
func (c *Config) Musl(name string) []string {
	absolute, ok := strings.CutSuffix(name, ".")
	if ok || strings.Count(name, ".") >= c.Ndots {
		return []string{absolute}
	}
	return append(c.searched(name), name)
}

func (c *Config) searched(name string) []string {
	out := make([]string, 0, len(c.Search)+1)
	for _, s := range c.Search {
		out = append(out, name+"."+s)
	}
	return out
}

// ClusterDomain returns the domain of the cluster, as the kubelet has put it into the search list: behind "svc.", or
// behind "NAMESPACE.svc." (generateSearchesForDNSClusterFirst in the kubelet's pkg/kubelet/network/dns/dns.go). It is
// "" where the list has neither.
func (c *Config) ClusterDomain(namespace string) string {
	for _, prefix := range []string{namespace + ".svc.", "svc."} {
		for _, s := range c.Search {
			if domain, ok := strings.CutPrefix(s, prefix); ok && domain != "" {
				return domain
			}
		}
	}
	return ""
}

// Libraries says with which libraries a name leads to another one.
type Libraries struct{ Glibc, Musl bool }

// Leads tells by which libraries name becomes full at some point, if nothing is answered before.
func (c *Config) Leads(name, full string) Libraries {
	return Libraries{slices.Contains(c.Glibc(name), full), slices.Contains(c.Musl(name), full)}
}
