// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// Sets are a node's ipsets. They are immutable and safe for concurrent use. With a nil *Sets every result is unknown.
type Sets struct {
	byName map[string]*set
}

// dim is one dimension of a set's elements.
type dim uint8

const (
	dimIP dim = iota
	dimNet
	dimPort
	dimMark
	dimMAC
	dimIface
	dimSet
)

// types are the set types of the kernel (net/netfilter/ipset). bitmap:port is the only one whose ports have no
// protocol.
var types = map[string][]dim{
	"bitmap:ip":         {dimIP},
	"bitmap:ip,mac":     {dimIP, dimMAC},
	"bitmap:port":       {dimPort},
	"hash:ip":           {dimIP},
	"hash:mac":          {dimMAC},
	"hash:ip,mac":       {dimIP, dimMAC},
	"hash:ip,mark":      {dimIP, dimMark},
	"hash:ip,port":      {dimIP, dimPort},
	"hash:ip,port,ip":   {dimIP, dimPort, dimIP},
	"hash:ip,port,net":  {dimIP, dimPort, dimNet},
	"hash:net":          {dimNet},
	"hash:net,iface":    {dimNet, dimIface},
	"hash:net,net":      {dimNet, dimNet},
	"hash:net,port":     {dimNet, dimPort},
	"hash:net,port,net": {dimNet, dimPort, dimNet},
	"list:set":          {dimSet},
}

// set is one set, indexed.
type set struct {
	name, typ string
	dims      []dim
	family    netfilter.Family // 0: any
	unknown   string           // why lookups are unknown; empty: they are supported

	masked   bool // the packet's address is masked before it is looked up
	mask     netip.Addr
	markMask uint32

	size  int            // number of elements in the dump
	bits  [2][]int       // prefix lengths of the first and second address, longest first
	exact map[key]bool   // -> nomatch
	spans map[key][]span // port ranges
	// some is every element without what may be unknown of a packet, its port or its MAC address, with the highest port.
	some   map[key]uint16
	ifaces map[key][]ifaceElem // hash:net,iface
	protos map[uint8]bool      // of the elements
	lists  []string            // list:set
}

// key is an element. Fields that the type does not have are zero. An address is a prefix of full length.
type key struct {
	a, b  netip.Prefix
	proto uint8
	port  uint16
	mark  uint32
}

type span struct {
	from, to uint16
	nomatch  bool
}

type ifaceElem struct {
	name                       string
	wildcard, physdev, nomatch bool
}

// Names returns the names of all sets, sorted.
func (s *Sets) Names() []string {
	if s == nil {
		return nil
	}
	out := make([]string, 0, len(s.byName))
	for name := range s.byName {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Describe returns a set's type ("hash:ip,port") and the number of its elements in the dump; ok is false where there is
// no such set.
func (s *Sets) Describe(name string) (typ string, elements int, ok bool) {
	if s == nil || s.byName[name] == nil {
		return "", 0, false
	}
	return s.byName[name].typ, s.byName[name].size, true
}
