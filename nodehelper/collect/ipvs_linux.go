// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/moby/ipvs"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// svcPersistent is IP_VS_SVC_F_PERSISTENT, svcOnePacket IP_VS_SVC_F_ONEPACKET, svcSched1 IP_VS_SVC_F_SCHED1 of linux/ip_vs.h; the two
// flags after it are its neighbours.
const (
	svcPersistent = 0x1
	svcOnePacket  = 0x4
	svcSched1     = 0x8
)

// schedulerFlags is how ipvsadm names a scheduler's own flags, from svcSched1 on (IP_VS_SVC_F_SCHED_SH_FALLBACK and its like).
var schedulerFlags = map[string][]string{"sh": {"sh-fallback", "sh-port"}, "mh": {"mh-fallback", "mh-port"}}

// readIPVS lists virtual and real servers as ipvsadm-save -n does. The caller has seen that ip_vs is there: moby/ipvs runs modprobe.
// Two things that kube-proxy never sets moby/ipvs does not read, and are left out: persistence engines (--pe), types of tunnels (--tun-type).
func readIPVS(_ context.Context, _ *reader) ([]byte, error) {
	logrus.SetOutput(io.Discard) // moby/ipvs says there that the image has no modprobe
	h, err := ipvs.New("")
	if err != nil {
		return nil, fmt.Errorf("IPVS: %w", err)
	}
	defer h.Close()
	services, err := h.GetServices()
	if err != nil {
		return nil, fmt.Errorf("IPVS: %w", err)
	}
	var out bytes.Buffer
	for _, s := range services {
		vs := virtualServer(s)
		fmt.Fprintf(&out, "-A %s -s %s", vs, s.SchedName)
		if s.Flags&svcPersistent != 0 {
			fmt.Fprintf(&out, " -p %d%s", s.Timeout, maskOf(s))
		}
		if s.Flags&svcOnePacket != 0 {
			out.WriteString(" -o")
		}
		if flags := flagsOf(s); len(flags) > 0 {
			out.WriteString(" -b " + strings.Join(flags, ","))
		}
		out.WriteByte('\n')
		dests, err := h.GetDestinations(s)
		if err != nil {
			return nil, fmt.Errorf("IPVS: the real servers of %s: %w", vs, err)
		}
		for _, d := range dests {
			fmt.Fprintf(&out, "-a %s -r %s %s -w %d\n", vs, join(d.Address, d.Port), methodOf(d), d.Weight)
		}
	}
	return out.Bytes(), nil
}

// virtualServer is how ipvsadm names a virtual server.
func virtualServer(s *ipvs.Service) string {
	if s.FWMark != 0 {
		text := "-f " + strconv.FormatUint(uint64(s.FWMark), 10)
		if s.AddressFamily == unix.AF_INET6 {
			text += " -6"
		}
		return text
	}
	option := map[uint16]string{unix.IPPROTO_TCP: "-t ", unix.IPPROTO_UDP: "-u ", unix.IPPROTO_SCTP: "--sctp-service "}[s.Protocol]
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
	return " -M " + net.IPv4(byte(m), byte(m>>8), byte(m>>16), byte(m>>24)).String() //nolint:gosec // the low byte is meant
}

// flagsOf lists a scheduler's flags; ipvsadm has numbers for those without a name.
func flagsOf(s *ipvs.Service) []string {
	var out []string
	names := schedulerFlags[s.SchedName]
	for i := range 3 {
		if s.Flags&(svcSched1<<i) == 0 {
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
