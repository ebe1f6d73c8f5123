// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
)

// answer is the kernel's answer to a lookup.
type answer struct {
	typ     host.RouteType
	dev     string
	gateway netip.Addr
	src     netip.Addr // that it would choose; zero where the query has one
}

func (a answer) String() string {
	return fmt.Sprintf("%s dev %s via %s src %s", a.typ, a.dev, a.gateway, a.src)
}

// kernel asks the kernel of this network namespace for routes (RTM_GETROUTE, as ip route get does).
type kernel struct {
	t     *testing.T
	fd    int
	names map[uint32]string
	index map[string]uint32
}

func newKernel(t *testing.T) *kernel {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	k := &kernel{t: t, fd: fd, names: map[uint32]string{}, index: map[string]uint32{}}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		k.names[uint32(l.Index)], k.index[l.Name] = l.Name, uint32(l.Index)
	}
	return k
}

// refusals are the errors of lookups (fib_props in net/ipv4/fib_semantics.c, ip6_rt_type_to_error in net/ipv6/route.c).
var refusals = map[unix.Errno]host.RouteType{
	unix.EINVAL: host.RouteBlackhole, unix.EHOSTUNREACH: host.RouteUnreachable, unix.EACCES: host.RouteProhibit,
	unix.ENETUNREACH: host.RouteNone,
}

var types = map[byte]host.RouteType{
	unix.RTN_UNICAST: host.RouteUnicast, unix.RTN_LOCAL: host.RouteLocal, unix.RTN_BROADCAST: host.RouteBroadcast,
	unix.RTN_ANYCAST: host.RouteLocal, unix.RTN_MULTICAST: host.RouteMulticast, unix.RTN_BLACKHOLE: host.RouteBlackhole,
	unix.RTN_UNREACHABLE: host.RouteUnreachable, unix.RTN_PROHIBIT: host.RouteProhibit,
}

// get asks.
func (k *kernel) get(q *host.Query) answer {
	k.t.Helper()
	msg := make([]byte, 16+12, 256)
	family := byte(unix.AF_INET)
	if q.Dst.Is6() {
		family = unix.AF_INET6
	}
	bits := byte(q.Dst.BitLen())
	msg[16], msg[17], msg[19] = family, bits, q.TOS
	attr := func(typ uint16, data []byte) {
		msg = binary.NativeEndian.AppendUint16(msg, uint16(4+len(data)))
		msg = binary.NativeEndian.AppendUint16(msg, typ)
		msg = append(msg, data...)
		for len(msg)%4 != 0 {
			msg = append(msg, 0)
		}
	}
	word := func(typ uint16, v uint32) { attr(typ, binary.NativeEndian.AppendUint32(nil, v)) }
	attr(unix.RTA_DST, q.Dst.AsSlice())
	if q.Src.IsValid() && !q.Src.IsUnspecified() {
		msg[18] = bits
		attr(unix.RTA_SRC, q.Src.AsSlice())
	}
	if !q.Local {
		word(unix.RTA_IIF, k.index[q.In])
	}
	if q.Out != "" {
		word(unix.RTA_OIF, k.index[q.Out])
	}
	word(unix.RTA_MARK, q.Mark)
	word(unix.RTA_UID, q.UID)
	attr(unix.RTA_IP_PROTO, []byte{q.Proto})
	if q.SrcPort != 0 {
		attr(unix.RTA_SPORT, binary.BigEndian.AppendUint16(nil, q.SrcPort))
	}
	attr(unix.RTA_DPORT, binary.BigEndian.AppendUint16(nil, q.DstPort))
	binary.NativeEndian.PutUint32(msg, uint32(len(msg)))
	binary.NativeEndian.PutUint16(msg[4:], unix.RTM_GETROUTE)
	binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST)
	if err := unix.Sendto(k.fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		k.t.Fatal(err)
	}
	buf := make([]byte, 8192)
	n, _, err := unix.Recvfrom(k.fd, buf, 0)
	if err != nil {
		k.t.Fatal(err)
	}
	return k.read(buf[:n], q)
}

func (k *kernel) read(msg []byte, q *host.Query) answer {
	k.t.Helper()
	if binary.NativeEndian.Uint16(msg[4:]) == unix.NLMSG_ERROR {
		errno := unix.Errno(-int32(binary.NativeEndian.Uint32(msg[16:])))
		typ, ok := refusals[errno]
		if !ok {
			k.t.Fatalf("%+v: %v", q, errno)
		}
		return answer{typ: typ}
	}
	a := answer{typ: types[msg[16+7]]}
	for rest := msg[28:]; len(rest) >= 4; {
		size := int(binary.NativeEndian.Uint16(rest))
		data := rest[4:size]
		switch binary.NativeEndian.Uint16(rest[2:]) {
		case unix.RTA_OIF:
			a.dev = k.names[binary.NativeEndian.Uint32(data)]
		case unix.RTA_GATEWAY:
			a.gateway, _ = netip.AddrFromSlice(data)
		case unix.RTA_VIA:
			a.gateway, _ = netip.AddrFromSlice(data[2:])
		case unix.RTA_PREFSRC:
			if q.Local && q.Src.IsUnspecified() {
				a.src, _ = netip.AddrFromSlice(data)
			}
		}
		rest = rest[min((size+3)&^3, len(rest)):]
	}
	return a
}

// network reads the namespace as the collector of the node helper does.
func network(t *testing.T) *host.Network {
	t.Helper()
	ip := func(args ...string) []byte {
		return []byte(testutil.Run(t, "", append([]string{"ip"}, args...)...))
	}
	n, errs := host.Parse(host.Files{
		Addr: ip("-j", "addr"), Link: ip("-j", "-d", "link"),
		Route4: ip("-j", "-4", "route", "show", "table", "all"), Rule4: ip("-j", "rule"),
		Route6: ip("-j", "-6", "route", "show", "table", "all"), Rule6: ip("-j", "-6", "rule"),
	})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return n
}

// differs compares an answer of the project's with the kernel's; "" where they agree.
func differs(l *host.Lookup, want answer) string {
	typ := l.Type
	if typ == host.RouteUnreachable && want.typ == host.RouteNone && l.By.RefusedByRule() ||
		typ == host.RouteNone && want.typ == host.RouteUnreachable {
		want.typ = typ // the kernel has one error for both
	}
	if typ != want.typ {
		return "the type"
	}
	if l.Unusable() || l.Type == host.RouteBroadcast { // which comes in by any interface
		return ""
	}
	hops := l.Hops
	if len(hops) == 0 {
		hops = []host.Hop{{Dev: l.Dev, Gateway: l.Gateway, PrefSrc: l.PrefSrc}}
	}
	what := "the interface"
	for _, h := range hops {
		if h.Dev != want.dev {
			continue
		}
		if h.Gateway != want.gateway {
			what = "the gateway"
			continue
		}
		if want.src.IsValid() && h.PrefSrc.IsValid() && h.PrefSrc != want.src {
			what = "the source"
			continue
		}
		return ""
	}
	return what
}

// batch runs commands of ip. What the kernel refuses is not there afterwards, and no error.
func batch(t *testing.T, family string, commands []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ip", family, "-force", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if _, err := cmd.CombinedOutput(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
}
