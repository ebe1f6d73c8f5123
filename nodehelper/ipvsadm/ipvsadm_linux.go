// SPDX-License-Identifier: Apache-2.0

// Package ipvsadm writes virtual and real servers as ipvsadm-save -n does. Two things that kube-proxy never sets
// moby/ipvs does not read, and they are left out: persistence engines (--pe), types of tunnels (--tun-type).
package ipvsadm

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"
)

// Flags of a virtual server (uapi/linux/ip_vs.h): IP_VS_SVC_F_PERSISTENT, IP_VS_SVC_F_HASHED, which is the kernel's
// own, IP_VS_SVC_F_ONEPACKET, and IP_VS_SVC_F_SCHED1; the two flags after that are its neighbours.
const (
	Persistent = 0x1
	Hashed     = 0x2
	onePacket  = 0x4
	Sched1     = 0x8
)

// schedulerFlags is how ipvsadm names a scheduler's own flags, from Sched1 on (IP_VS_SVC_F_SCHED_SH_FALLBACK and its
// like).
var schedulerFlags = map[string][]string{"sh": {"sh-fallback", "sh-port"}, "mh": {"mh-fallback", "mh-port"}}

// Virtual is the line of a virtual server.
func Virtual(s *ipvs.Service) string {
	line := "-A " + Name(s) + " -s " + s.SchedName
	if s.Flags&Persistent != 0 {
		line += fmt.Sprintf(" -p %d%s", s.Timeout, maskOf(s))
	}
	if s.Flags&onePacket != 0 {
		line += " -o"
	}
	if flags := flagsOf(s); len(flags) > 0 {
		line += " -b " + strings.Join(flags, ",")
	}
	return line
}

// Real is the line of a real server of a virtual one.
func Real(s *ipvs.Service, d *ipvs.Destination) string {
	return fmt.Sprintf("-a %s -r %s %s -w %d", Name(s), join(d.Address, d.Port), methodOf(d), d.Weight)
}

// Name is how ipvsadm names a virtual server: the option of its protocol, address and port.
func Name(s *ipvs.Service) string {
	if s.FWMark != 0 {
		text := "-f " + strconv.FormatUint(uint64(s.FWMark), 10)
		if s.AddressFamily == unix.AF_INET6 {
			text += " -6"
		}
		return text
	}
	option := map[uint16]string{
		unix.IPPROTO_TCP: "-t ", unix.IPPROTO_UDP: "-u ", unix.IPPROTO_SCTP: "--sctp-service ",
	}[s.Protocol]
	return option + join(s.Address, s.Port)
}

// maskOf is the granularity of persistence, where it is not one client.
func maskOf(s *ipvs.Service) string {
	if s.AddressFamily == unix.AF_INET6 {
		if s.Netmask != 128 {
			return fmt.Sprintf(" -M %d", s.Netmask)
		}
		return ""
	}
	if s.Netmask == 0xffffffff {
		return ""
	}
	// The number is the mask as it lies in memory.
	m := s.Netmask
	//nolint:gosec // the low byte is meant
	return " -M " + net.IPv4(byte(m), byte(m>>8), byte(m>>16), byte(m>>24)).String()
}

// flagsOf lists a scheduler's flags; ipvsadm has numbers for those without a name.
func flagsOf(s *ipvs.Service) []string {
	var out []string
	names := schedulerFlags[s.SchedName]
	for i := range 3 {
		if s.Flags&(Sched1<<i) == 0 {
			continue
		}
		name := "flag-" + strconv.Itoa(i+1)
		if i < len(names) {
			name = names[i]
		}
		out = append(out, name)
	}
	return out
}

func methodOf(d *ipvs.Destination) string {
	switch d.ConnectionFlags & ipvs.ConnFwdMask {
	case ipvs.ConnFwdMasq:
		return "-m"
	case ipvs.ConnFwdTunnel:
		return "-i"
	case ipvs.ConnFwdDirectRoute:
		return "-g"
	}
	return "-g" // local and bypass, which ipvsadm has no option for
}

func join(ip net.IP, port uint16) string {
	text := ip.String()
	if strings.Contains(text, ":") {
		text = "[" + text + "]"
	}
	return text + ":" + strconv.Itoa(int(port))
}
