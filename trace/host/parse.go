// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Files are the contents of a node's files about its network. A nil file was not collected; an empty one is the result
// of a failed collection, and an error.
type Files struct {
	Addr   []byte // ip-addr.json: ip -j addr, and behind it ip -j addrlabel list
	Link   []byte // ip-link.json: ip -j -d link
	Route4 []byte // ip-route.json: ip -j route, or with "show table all", which prints both families
	Route6 []byte // ip6-route.json: ip -j -6 route, or with "show table all"
	Rule4  []byte // ip-rule.json: ip -j rule; nil: the kernel's default rules
	Rule6  []byte // ip6-rule.json: ip -j -6 rule; nil: the kernel's default rules
	Sysctl []byte // sysctl.txt
	// Neighbours is ip-neigh.json, ip -j neigh show nud all; BridgeFDB is bridge-fdb.json, bridge -j fdb show.
	Neighbours, BridgeFDB []byte
	WireGuard             []byte // wireguard.txt: wg show all
	Time                  []byte // time.txt: date -u +%FT%TZ, and the kernel's time zone
	// Rule4Unread and Rule6Unread: the node has rules that could not be read, so that they need not be the default ones.
	Rule4Unread, Rule6Unread bool
}

// WithAPI returns the network with what the API knows of addresses: own are the InternalIPs of the Node object's
// status, which are the node's own even where ip-addr.json was not collected (an ExternalIP must not be among them:
// clouds translate it before packets reach the node); others are the addresses of pods that have their own, and of
// other nodes, which are not the node's own even where ip-addr.json was not collected. others is retained,
// and not changed; nil for none.
func (n *Network) WithAPI(own []netip.Addr, others *AddrMap) *Network {
	out := *n
	out.nodes, out.others = NewAddrMap(len(own)), others
	for _, a := range own {
		if a.IsValid() {
			out.nodes.Set(a.Unmap().WithZone(""), true)
		}
	}
	return &out
}

// Parse reads the files. A file that cannot be parsed completely is ignored, as if it had not been collected, and there
// is a [FileError] for it with what was expected; of sysctl.txt the complete lines are read. Routing policy rules that
// cannot be read are not the default ones: routes other than to the node's own addresses are then not known. The
// Network is never nil.
func Parse(files Files) (*Network, []error) {
	n := &Network{}
	var errs []error
	read := func(name, made string, data []byte, parse func([]byte) error) {
		if data == nil {
			return
		}
		if err := parse(data); err != nil {
			_, some := errors.AsType[*incomplete](err)
			errs = append(errs, &FileError{name, some, fmt.Errorf("%w: expected the output of: %s", err, made)})
		}
	}
	read(snapshot.AddrFile, "ip -j addr, and of ip -j addrlabel list behind it", files.Addr, n.readAddrs)
	read(snapshot.LinkFile, "ip -j -d link", files.Link, n.readLinks)
	read(snapshot.Route6File, "ip -j -6 route", files.Route6, func(data []byte) error { return n.readRoutes(data, 1) })
	read(snapshot.RouteFile, "ip -j route", files.Route4, func(data []byte) error { return n.readRoutes(data, 0) })
	for fam, data := range [][]byte{files.Rule4, files.Rule6} {
		if data != nil || [...]bool{files.Rule4Unread, files.Rule6Unread}[fam] {
			n.rulesUnread(fam)
		}
	}
	read(snapshot.RuleFile, "ip -j rule", files.Rule4, func(data []byte) error { return n.readRules(data, 0) })
	read(snapshot.Rule6File, "ip -j -6 rule", files.Rule6, func(data []byte) error { return n.readRules(data, 1) })
	read(snapshot.NeighbourFile, "ip -j neigh show nud all, and of ip -j neigh show proxy behind it", files.Neighbours,
		n.readNeighbours)
	read(snapshot.BridgeFDBFile, "bridge -j fdb show", files.BridgeFDB, n.readFDB)
	read(snapshot.WireGuardFile, "wg show all", files.WireGuard, n.readWireGuard)
	read(snapshot.SysctlFile, "sysctl -a", files.Sysctl, n.readSysctl)
	read(snapshot.TimeFile, "date -u +%FT%TZ", files.Time, n.readClock)
	n.buildTables()
	return n, errs
}

// decode reads one JSON array of objects; anything after it is an error.
func decode[T any](data []byte) ([]T, error) {
	lists, err := decodeLists[T](data, 1)
	if err != nil {
		return nil, err
	}
	return lists[0], nil
}

// decodeLists reads JSON arrays of objects, at least one and so many at most; anything after them is an error.
func decodeLists[T any](data []byte, most int) (lists [][]T, err error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("it is empty")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	for range most {
		var out []T
		if err := d.Decode(&out); errors.Is(err, io.EOF) && len(lists) > 0 {
			return lists, nil
		} else if err != nil {
			return nil, badJSON(err, len(data))
		}
		if out == nil {
			return nil, errors.New("it holds null, not a list")
		}
		lists = append(lists, out)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("there is something after the list (byte %d)", d.InputOffset())
	}
	return lists, nil
}

// badJSON describes in one line what is wrong with a JSON text.
func badJSON(err error, size int) error {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the JSON is cut off at byte %d", size)
	case errors.As(err, &syntax):
		return fmt.Errorf("it is not JSON: %w (byte %d)", err, syntax.Offset)
	case errors.As(err, &typ):
		where := "at its top"
		if typ.Field != "" {
			where = "for " + typ.Field
		}
		return fmt.Errorf("it has a %s %s, where %s was expected (byte %d)", typ.Value, where, typ.Type.Kind(), typ.Offset)
	}
	return err
}

// parseAddr reads an address as the ip tool prints it.
func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return netip.Addr{}, fmt.Errorf("it has %q for an address", s)
	}
	return a, nil
}

// parsePrefix reads "10.0.0.0/8", or an address, which is a prefix of full length. "default" and "all" have no family;
// the caller handles them.
func parsePrefix(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		a, err := parseAddr(s)
		if err != nil {
			return netip.Prefix{}, err
		}
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("it has %q for a prefix", s)
	}
	return p.Masked(), nil
}
