// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// readWireGuard lists the WireGuard interfaces and their peers as "wg show all" prints them, which need not be on the
// node. The kernel tells the private key, too (wg_get_device_dump in drivers/net/wireguard/netlink.c): it is not kept.
func readWireGuard(context.Context, *reader) ([]byte, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("the interfaces: %w", err)
	}
	links = slices.DeleteFunc(links, func(l netlink.Link) bool { return l.Type() != "wireguard" })
	if len(links) == 0 {
		return nil, errAbsent
	}
	// Its module is there: else it would be loaded (ctrl_getfamily in net/netlink/genetlink.c).
	family, err := netlink.GenlFamilyGet(unix.WG_GENL_NAME)
	if err != nil {
		return nil, fmt.Errorf("the kernel's family %s: %w", unix.WG_GENL_NAME, err)
	}
	var out bytes.Buffer
	for i, l := range links {
		d, err := wireguardDevice(family.ID, l.Attrs().Index)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Attrs().Name, err)
		}
		if i > 0 {
			out.WriteByte('\n')
		}
		d.print(&out, l.Attrs().Name, time.Now())
	}
	return out.Bytes(), nil
}

// wgDevice is a WireGuard interface as the kernel tells of it (uapi/linux/wireguard.h).
type wgDevice struct {
	public  []byte
	private bool // there is one
	port    uint16
	mark    uint32
	peers   []*wgPeer
}

type wgPeer struct {
	public    []byte
	preshared bool
	endpoint  netip.AddrPort
	keepalive uint16
	handshake int64 // seconds since 1970; 0 for never
	rx, tx    uint64
	allowed   []string
}

// wireguardDevice reads one interface. What one answer has no room for is in the next, which begins with the last peer
// again.
func wireguardDevice(family uint16, index int) (*wgDevice, error) {
	r := nl.NewNetlinkRequest(int(family), unix.NLM_F_DUMP)
	r.AddData(&nl.Genlmsg{Command: unix.WG_CMD_GET_DEVICE, Version: 1})
	r.AddData(nl.NewRtAttr(unix.WGDEVICE_A_IFINDEX, nl.Uint32Attr(uint32(index)))) //nolint:gosec // of an interface
	answers, err := r.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, err
	}
	out := &wgDevice{}
	for _, a := range answers {
		if len(a) < nl.SizeofGenlmsg {
			return nil, errors.New("netlink: an answer is too short")
		}
		if err := attributes(a[nl.SizeofGenlmsg:], out.set); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// attributes calls f for each attribute of netlink.
func attributes(b []byte, f func(kind int, value []byte) error) error {
	list, err := nl.ParseRouteAttr(b)
	if err != nil {
		return err
	}
	for i := range list {
		if err := f(int(list[i].Attr.Type&nl.NLA_TYPE_MASK), list[i].Value); err != nil {
			return err
		}
	}
	return nil
}

// number is an integer of 1, 2, 4 or 8 bytes; 0 for any other length.
func number(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2: //nolint:mnd // bytes
		return uint64(binary.NativeEndian.Uint16(b))
	case 4: //nolint:mnd // bytes
		return uint64(binary.NativeEndian.Uint32(b))
	case 8: //nolint:mnd // bytes
		return binary.NativeEndian.Uint64(b)
	}
	return 0
}

func (w *wgDevice) set(kind int, value []byte) error {
	switch kind {
	case unix.WGDEVICE_A_PUBLIC_KEY:
		w.public = value
	case unix.WGDEVICE_A_PRIVATE_KEY:
		w.private = true
	case unix.WGDEVICE_A_LISTEN_PORT:
		w.port = uint16(number(value)) //nolint:gosec // it has 16 bits
	case unix.WGDEVICE_A_FWMARK:
		w.mark = uint32(number(value)) //nolint:gosec // it has 32 bits
	case unix.WGDEVICE_A_PEERS:
		return attributes(value, func(_ int, peer []byte) error { return w.addPeer(peer) })
	}
	return nil
}

func (w *wgDevice) addPeer(peer []byte) error {
	p := &wgPeer{}
	if err := attributes(peer, p.set); err != nil {
		return err
	}
	if n := len(w.peers); n > 0 && bytes.Equal(w.peers[n-1].public, p.public) {
		w.peers[n-1].allowed = append(w.peers[n-1].allowed, p.allowed...)
		return nil
	}
	w.peers = append(w.peers, p)
	return nil
}

func (p *wgPeer) set(kind int, value []byte) error {
	switch kind {
	case unix.WGPEER_A_PUBLIC_KEY:
		p.public = value
	case unix.WGPEER_A_PRESHARED_KEY: // all zeros for none
		p.preshared = slices.ContainsFunc(value, func(b byte) bool { return b != 0 })
	case unix.WGPEER_A_ENDPOINT:
		p.endpoint = sockaddrOf(value)
	case unix.WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL:
		p.keepalive = uint16(number(value)) //nolint:gosec // it has 16 bits
	case unix.WGPEER_A_LAST_HANDSHAKE_TIME: // struct __kernel_timespec
		const seconds = 8 // bytes
		if len(value) >= seconds {
			p.handshake = int64(number(value[:seconds])) //nolint:gosec // it is signed
		}
	case unix.WGPEER_A_RX_BYTES:
		p.rx = number(value)
	case unix.WGPEER_A_TX_BYTES:
		p.tx = number(value)
	case unix.WGPEER_A_ALLOWEDIPS:
		return attributes(value, func(_ int, allowed []byte) error { return p.allow(allowed) })
	}
	return nil
}

func (p *wgPeer) allow(allowed []byte) error {
	var at netip.Addr
	bits := 0
	err := attributes(allowed, func(kind int, value []byte) error {
		switch kind {
		case unix.WGALLOWEDIP_A_IPADDR:
			at, _ = netip.AddrFromSlice(value)
		case unix.WGALLOWEDIP_A_CIDR_MASK:
			bits = int(number(value)) //nolint:gosec // it has 8 bits
		}
		return nil
	})
	p.allowed = append(p.allowed, netip.PrefixFrom(at, bits).String())
	return err
}

// sockaddrOf reads a struct sockaddr_in or sockaddr_in6; the zero AddrPort for any other.
func sockaddrOf(b []byte) netip.AddrPort {
	const inet, inet6 = 8, 24 // bytes up to the end of the address
	if len(b) < inet {
		return netip.AddrPort{}
	}
	port := binary.BigEndian.Uint16(b[2:])
	switch family := binary.NativeEndian.Uint16(b); {
	case family == unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:inet])), port)
	case family == unix.AF_INET6 && len(b) >= inet6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:inet6])), port)
	}
	return netip.AddrPort{}
}

// print writes an interface as wg does (pretty_print in src/show.c of wireguard-tools).
func (w *wgDevice) print(out *bytes.Buffer, name string, now time.Time) {
	fmt.Fprintf(out, "interface: %s\n", name)
	line := func(what, format string, args ...any) {
		fmt.Fprintf(out, "  "+what+": "+format+"\n", args...)
	}
	if w.private {
		line("public key", "%s", base64.StdEncoding.EncodeToString(w.public))
		line("private key", "(hidden)")
	}
	if w.port != 0 {
		line("listening port", "%d", w.port)
	}
	if w.mark != 0 {
		line("fwmark", "0x%x", w.mark)
	}
	// wg shows first those that it has heard of last.
	slices.SortStableFunc(w.peers, func(a, b *wgPeer) int { return cmp.Compare(b.handshake, a.handshake) })
	for _, p := range w.peers {
		fmt.Fprintf(out, "\npeer: %s\n", base64.StdEncoding.EncodeToString(p.public))
		if p.preshared {
			line("preshared key", "(hidden)")
		}
		if p.endpoint.IsValid() && p.endpoint.Port() != 0 {
			line("endpoint", "%s", p.endpoint)
		}
		line("allowed ips", "%s", cmp.Or(strings.Join(p.allowed, ", "), "(none)"))
		if p.handshake != 0 {
			line("latest handshake", "%s", ago(now.Unix()-p.handshake))
		}
		if p.rx != 0 || p.tx != 0 {
			line("transfer", "%s received, %s sent", transferred(p.rx), transferred(p.tx))
		}
		if p.keepalive != 0 {
			line("persistent keepalive", "every %s", lasting(int64(p.keepalive)))
		}
	}
}

func ago(seconds int64) string {
	switch {
	case seconds == 0:
		return "Now"
	case seconds < 0:
		return "(System clock wound backward; connection problems may ensue.)"
	}
	return lasting(seconds) + " ago"
}

// lasting is a time as wg writes it: "1 minute, 3 seconds".
func lasting(seconds int64) string {
	var parts []string
	for _, u := range []struct {
		name string
		of   int64
	}{{"year", 365 * 86400}, {"day", 86400}, {"hour", 3600}, {"minute", 60}, {"second", 1}} {
		if n := seconds / u.of; n > 0 {
			text := fmt.Sprintf("%d %s", n, u.name)
			if n > 1 {
				text += "s"
			}
			parts = append(parts, text)
		}
		seconds %= u.of
	}
	return strings.Join(parts, ", ")
}

// transferred is a number of bytes as wg writes it.
func transferred(n uint64) string {
	const step = 1024
	if n < step {
		return fmt.Sprintf("%d B", n)
	}
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	v, at := float64(n)/step, 0
	for v >= step && at < len(units)-1 {
		v, at = v/step, at+1
	}
	return fmt.Sprintf("%.2f %s", v, units[at])
}
