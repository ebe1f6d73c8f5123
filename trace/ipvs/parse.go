// SPDX-License-Identifier: Apache-2.0

// Package ipvs reads the kernel's table of virtual servers, as ipvsadm prints it.
package ipvs

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/pasted"
)

// VirtualServer is an address and port, or a firewall mark, whose connections IPVS balances over real servers.
type VirtualServer struct {
	Protocol   string         // TCP, UDP, SCTP, FWM
	Address    netip.AddrPort // the zero AddrPort for FWM
	Mark       uint32         // of FWM
	IPv6       bool           // of FWM: it is for IPv6
	Scheduler  string         // rr, wrr, lc, …
	Persistent uint32         // persistence timeout in seconds; 0: no persistence
	Mask       string         // persistence granularity, where it is not a single address; as ipvsadm prints it
	Flags      []string       // ops (one packet), and the scheduler's own (sh-port, mh-fallback, …)
	Reals      []RealServer
}

// RealServer is a server to which a virtual server may send connections.
type RealServer struct {
	Address netip.AddrPort
	Method  string // Masq, Route, Tunnel, Local
	Weight  int    // 0: no new connections
	// Active and Inactive are the numbers of its connections; -1 where they were not listed (ipvsadm-save).
	Active, Inactive int
}

// Parse reads what ipvsadm-save -n prints, or ipvsadm -Ln, also with what copying adds to it (package pasted). An empty
// table is valid. The error names the line; there is no partial result.
func Parse(data []byte) ([]VirtualServer, error) {
	servers, err := parse(data)
	if err == nil {
		return servers, nil
	}
	if text, ok := unpasted(data); ok {
		if servers, err := parse([]byte(text)); err == nil {
			return servers, nil
		}
	}
	return nil, err
}

// unpasted returns a text without what copying adds to it, and without prompts, commands and comments; ok is false
// where somebody has left out lines of it: what is missing cannot be told from what the kernel does not have.
func unpasted(data []byte) (text string, ok bool) {
	lines := strings.Split(pasted.Text(data), "\n")
	for i, line := range lines {
		c, command := pasted.CommandOf(line, func(tool string) bool { return strings.HasPrefix(tool, "ipvsadm") })
		switch {
		case command && c.Filtered, line != "" && pasted.Elided(line):
			return "", false
		case command, pasted.Prompt(line), strings.HasPrefix(line, "#"):
			lines[i] = ""
		}
	}
	return strings.Join(lines, "\n"), true
}

func parse(data []byte) ([]VirtualServer, error) {
	p := parser{first: map[address]int{}}
	for line := range bytes.Lines(data) {
		p.n++
		f := strings.Fields(string(line))
		if len(f) == 0 {
			continue
		}
		if err := p.line(f); err != nil {
			return nil, fmt.Errorf("line %d: %w: expected the output of ipvsadm-save -n or ipvsadm -Ln", p.n, err)
		}
	}
	if p.listed > 0 && !p.header {
		return nil, fmt.Errorf("line %d: it has no header, so that it is a part of the output of ipvsadm -Ln: all of it was "+
			"expected", p.listed)
	}
	return p.servers, nil
}

type parser struct {
	servers []VirtualServer
	// first is the index of the first virtual server of each address: real servers name theirs.
	first map[address]int

	n, listed int  // the number of the line, and of the first one that ipvsadm -Ln prints
	header    bool // ipvsadm -Ln begins with it: where it is missing, more may be
}

// address is what a virtual server is named by.
type address struct {
	protocol string
	address  netip.AddrPort
	mark     uint32
}

func (p *parser) addServer(v VirtualServer) {
	key := address{v.Protocol, v.Address, v.Mark}
	if _, ok := p.first[key]; !ok {
		p.first[key] = len(p.servers)
	}
	p.servers = append(p.servers, v)
}

// line reads one line: the first word decides which of the two formats it has.
func (p *parser) line(f []string) error {
	switch f[0] {
	case "-A":
		return p.savedVirtual(f[1:])
	case "-a":
		return p.savedReal(f[1:])
	case "IP", "Prot": // the header lines of ipvsadm -Ln
		p.header = true
		return nil
	case "->":
		if len(f) > 1 && strings.HasPrefix(f[1], "RemoteAddress") {
			return nil
		}
		return p.listedReal(f[1:])
	}
	if p.listed == 0 {
		p.listed = p.n
	}
	return p.listedVirtual(f)
}

// kinds are the options that name a virtual server.
var kinds = map[string]string{"-t": "TCP", "-u": "UDP", "--sctp-service": "SCTP", "-f": "FWM"}

var errShort = errors.New("it breaks off")

// words returns the words of a line one after the other.
type words struct{ rest []string }

func (w *words) next() (string, error) {
	if len(w.rest) == 0 {
		return "", errShort
	}
	word := w.rest[0]
	w.rest = w.rest[1:]
	return word, nil
}

// service reads -t ADDRESS:PORT, or -f MARK.
func (w *words) service() (v VirtualServer, err error) {
	option, err := w.next()
	if err != nil {
		return v, err
	}
	if v.Protocol = kinds[option]; v.Protocol == "" {
		return v, fmt.Errorf("%q names no virtual server", option)
	}
	at, err := w.next()
	if err != nil {
		return v, err
	}
	err = v.at(at)
	return v, err
}

func (v *VirtualServer) at(text string) error {
	if v.Protocol == "FWM" {
		mark, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return fmt.Errorf("%q is not a firewall mark", text)
		}
		v.Mark = uint32(mark)
		return nil
	}
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return fmt.Errorf("%q is not ADDRESS:PORT in numbers", text)
	}
	v.Address = a
	return nil
}

func (p *parser) savedVirtual(f []string) error {
	w := words{f}
	v, err := w.service()
	for err == nil && len(w.rest) > 0 {
		var option, value string
		option, _ = w.next()
		switch option {
		case "-o":
			v.Flags = append(v.Flags, "ops")
			continue
		case "-6":
			v.IPv6 = true
			continue
		}
		if value, err = w.next(); err == nil {
			err = v.set(option, value)
		}
	}
	if err != nil {
		return err
	}
	p.addServer(v)
	return nil
}

// set reads an option that has a value.
func (v *VirtualServer) set(option, value string) error {
	switch option {
	case "-s":
		v.Scheduler = value
	case "-M", "mask":
		v.Mask = value
	case "-b":
		v.Flags = append(v.Flags, strings.Split(value, ",")...)
	case "--pe", "pe":
		v.Flags = append(v.Flags, "pe "+value)
	case "-p", "persistent":
		seconds, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return fmt.Errorf("%q is not a number of seconds", value)
		}
		v.Persistent = uint32(seconds)
	default:
		return fmt.Errorf("%q is not known", option)
	}
	return nil
}

// methods are the forwarding methods by their options in ipvsadm-save.
var methods = map[string]string{"-m": "Masq", "-g": "Route", "-i": "Tunnel"}

func (p *parser) savedReal(f []string) error {
	w := words{f}
	v, err := w.service()
	if err != nil {
		return err
	}
	i, ok := p.first[address{v.Protocol, v.Address, v.Mark}]
	if !ok {
		return errors.New("its virtual server is missing")
	}
	r := RealServer{Active: -1, Inactive: -1}
	for len(w.rest) > 0 {
		option, _ := w.next()
		if m, ok := methods[option]; ok {
			r.Method = m
			continue
		}
		value, err := w.next()
		if err != nil {
			return err
		}
		switch option {
		case "-r":
			r.Address, err = netip.ParseAddrPort(value)
		case "-w":
			r.Weight, err = strconv.Atoi(value)
		// do not affect the destination of connections
		case "--tun-type", "--tun-port", "-x", "-y", "--tun-nocsum", "--tun-csum", "--tun-remcsum":
		default:
			err = fmt.Errorf("%q is not known", option)
		}
		if err != nil {
			return err
		}
	}
	return p.add(i, r)
}

func (p *parser) add(i int, r RealServer) error {
	if !r.Address.IsValid() || r.Method == "" || r.Weight < 0 {
		return errors.New("it is not a real server: it has no address, no forwarding method, or a weight below 0")
	}
	p.servers[i].Reals = append(p.servers[i].Reals, r)
	return nil
}

// listedVirtual reads TCP  10.96.0.1:443 rr persistent 10800 mask 255.255.0.0 (sh-port,…) ops.
func (p *parser) listedVirtual(f []string) error {
	w := words{f[1:]}
	v := VirtualServer{Protocol: f[0]}
	if !slices.Contains([]string{"TCP", "UDP", "SCTP", "FWM"}, v.Protocol) {
		return fmt.Errorf("%q begins no line of it", f[0])
	}
	at, err := w.next()
	if err == nil {
		err = v.at(at)
	}
	if err == nil {
		v.Scheduler, err = w.next()
	}
	for err == nil && len(w.rest) > 0 {
		word, _ := w.next()
		switch {
		case word == "ops":
			v.Flags = append(v.Flags, word)
		case word == "IPv6": // of FWM
			v.IPv6 = true
		case strings.HasPrefix(word, "(") && strings.HasSuffix(word, ")"):
			v.Flags = append(v.Flags, strings.Split(strings.Trim(word, "()"), ",")...)
		default:
			var value string
			if value, err = w.next(); err == nil {
				err = v.set(word, value)
			}
		}
	}
	if err != nil {
		return err
	}
	p.addServer(v)
	return nil
}

// listedReal reads 10.0.2.15:6443 Masq 1 0 0.
func (p *parser) listedReal(f []string) error {
	const columns = 5
	if len(p.servers) == 0 || len(f) < columns {
		return errShort
	}
	r := RealServer{Method: f[1]}
	if !slices.Contains([]string{"Masq", "Route", "Tunnel", "Local"}, r.Method) {
		return fmt.Errorf("%q is not a forwarding method", r.Method)
	}
	var err error
	if r.Address, err = netip.ParseAddrPort(f[0]); err != nil {
		return err
	}
	for i, to := range []*int{&r.Weight, &r.Active, &r.Inactive} {
		if *to, err = strconv.Atoi(f[2+i]); err != nil {
			return fmt.Errorf("%q is not a number", f[2+i])
		}
	}
	return p.add(len(p.servers)-1, r)
}
