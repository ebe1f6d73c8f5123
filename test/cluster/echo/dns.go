// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// maxQuery is how many bytes of a query are read.
const maxQuery = 512

// zone is what the name server knows: addresses, or another name, by a name in lower case with a dot at its end.
type zone map[string]record

type record struct {
	addresses []netip.Addr
	alias     string // "" for none; with a dot at its end
}

// parseZone reads NAME=ADDRESS,ADDRESS and NAME=OTHER-NAME.
func parseZone(args []string) (zone, error) {
	z := zone{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not NAME=ADDRESS", arg)
		}
		var r record
		for text := range strings.SplitSeq(value, ",") {
			if a, err := netip.ParseAddr(text); err == nil {
				r.addresses = append(r.addresses, a.Unmap())
			} else if text != "" {
				r.alias = text + "."
			}
		}
		z[strings.ToLower(name)+"."] = r
	}
	return z, nil
}

// serveDNS answers questions at an address over UDP and TCP until the context ends.
func serveDNS(ctx context.Context, address string, args []string) error {
	z, err := parseZone(args)
	if err != nil {
		return err
	}
	tcp, udp, err := listen(ctx, address)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _, _ = tcp.Close(), udp.Close() })
	go accept(tcp, z.overTCP)
	buf := make([]byte, maxQuery)
	for {
		n, from, err := udp.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			continue
		}
		if answer, err := z.answer(buf[:n]); err == nil {
			_, _ = udp.WriteTo(answer, from)
		}
	}
}

// overTCP answers one question of a connection.
func (z zone) overTCP(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	var head [2]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return
	}
	query := make([]byte, min(binary.BigEndian.Uint16(head[:]), maxQuery))
	if _, err := io.ReadFull(c, query); err != nil {
		return
	}
	if answer, err := z.answer(query); err == nil {
		_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)) //nolint:gosec // short
	}
}

// answer answers a query with one question.
func (z zone) answer(query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	if len(m.Questions) != 1 || m.Response {
		return nil, errors.New("no query")
	}
	q := m.Questions[0]
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 5}
	known, ok := z[strings.ToLower(q.Name.String())]
	if !ok {
		m.RCode = dnsmessage.RCodeNameError
	}
	if known.alias != "" {
		to, err := dnsmessage.NewName(known.alias)
		if err != nil {
			return nil, err
		}
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.CNAMEResource{CNAME: to}})
	}
	for _, a := range known.addresses {
		switch {
		case q.Type == dnsmessage.TypeA && a.Is4():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: a.As4()}})
		case q.Type == dnsmessage.TypeAAAA && a.Is6():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return m.Pack()
}
