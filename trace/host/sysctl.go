// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// readSysctl reads sysctl.txt: the lines KEY=VALUE, comments and messages of sysctl itself aside. The error is
// [incomplete] where other lines are among them, and where the text ends within a line, whose value may have lost its
// end: of these nothing is read, and a key that is missing may be there on the node.
func (n *Network) readSysctl(data []byte) error {
	values := map[string]string{}
	odd := 0 // the first line that is none
	cut := Unterminated(data)
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' || strings.HasPrefix(line, "sysctl: ") ||
			cut && i == len(lines)-1 {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		key = strings.TrimSpace(key)
		if !ok || !settingName(key) || !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
			if odd == 0 {
				odd = i + 1
			}
			continue
		}
		values[slashed(strings.TrimPrefix(key, "/proc/sys/"))] = strings.TrimSpace(value)
	}
	switch {
	case len(values) == 0 && odd == 0 && cut:
		return errors.New("it is cut off in its only line")
	case len(values) == 0 && odd == 0:
		return errors.New("it is empty")
	case len(values) == 0:
		return fmt.Errorf("line %d is not KEY=VALUE", odd)
	}
	n.sysctl = values
	n.readConf()
	n.readLocalPorts()
	switch {
	case odd > 0:
		return &incomplete{fmt.Sprintf("line %d is not KEY=VALUE", odd)}
	case cut:
		return &incomplete{fmt.Sprintf("it is cut off in line %d", len(lines))}
	}
	return nil
}

// settingName tells whether a text may be the name of a setting: the names of interfaces are part of some, and may have
// any character but a space and a slash (dev_valid_name in net/core/dev.c).
func settingName(key string) bool {
	return strings.ContainsAny(key, "./") && !strings.ContainsFunc(key, func(r rune) bool {
		return r <= ' ' || r == '<' || r == '>' || r == utf8.RuneError || r == 0x7f
	})
}

// slashed returns a key in the form of its path below /proc/sys. In the dotted form the two separators are exchanged:
// net.ipv4.conf.eth0/100.rp_filter is of the interface eth0.100.
func slashed(key string) string {
	if at := strings.IndexAny(key, "./"); at < 0 || key[at] == '/' {
		return key
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, key)
}

// Sysctl returns the value of a kernel parameter; key may be written net/ipv4/ip_forward or net.ipv4.ip_forward. ok is
// false where it was not collected.
func (n *Network) Sysctl(key string) (value string, ok bool) {
	value, ok = n.sysctl[slashed(key)]
	return value, ok
}

// ConnectionTable returns how many entries the kernel's connection table has, and how many it may have; ok is false
// where that was not collected, and where there is no limit. A new connection that is one too many is dropped, unless
// one that is not assured makes room (nf_conntrack_alloc in net/netfilter/nf_conntrack_core.c).
func (n *Network) ConnectionTable() (used, most float64, ok bool) {
	ok = true
	value := func(key string) float64 {
		text, there := n.Sysctl("net/netfilter/" + key)
		v, err := strconv.ParseFloat(text, 64)
		ok = ok && there && err == nil
		return v
	}
	used, most = value("nf_conntrack_count"), value("nf_conntrack_max")
	return used, most, ok && most > 0
}

// HasSysctls tells whether some setting below a path was collected, such as "net/netfilter/".
func (n *Network) HasSysctls(prefix string) bool {
	for key := range n.sysctl {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// HasInterfaceSettings tells whether settings of single interfaces were collected, as every helper does: a file without
// any has those of all alone.
func (n *Network) HasInterfaceSettings() bool { return n.ofInterfaces }

// confKey is the interface, "all" or "default", and the name of a setting below net/ipv4/conf.
type confKey struct{ dev, name string }

// confPath is where settings of interfaces are, of IPv4.
const confPath = "net/ipv4/conf/"

func (n *Network) readConf() {
	n.conf = map[confKey]string{}
	for key, value := range n.sysctl {
		rest, ok := strings.CutPrefix(key, confPath)
		dev, name, found := strings.Cut(rest, "/")
		if !ok || !found {
			continue
		}
		n.conf[confKey{dev, name}] = value
		n.ofInterfaces = n.ofInterfaces || dev != "all" && dev != "default"
	}
}

// Conf is [Network.Sysctl] of net/ipv4/conf/DEV/NAME, of which every path asks: it makes no key.
func (n *Network) Conf(dev, name string) (value string, ok bool) {
	value, ok = n.conf[confKey{dev, name}]
	return value, ok
}

// setting is one that is a number, and it as text: KEY=VALUE.
type setting struct {
	value int
	text  string
}

// settings returns a setting of IPv4 for all interfaces and that of one; ok is false where one of them was not
// collected, or is not a number.
func (n *Network) settings(dev, name string) (all, own setting, ok bool) {
	var both [2]setting
	for i, of := range []string{"all", dev} {
		key := "net/ipv4/conf/" + of + "/" + name
		text, there := n.Sysctl(key)
		if !there {
			return setting{}, setting{}, false
		}
		v, err := strconv.Atoi(text)
		if err != nil {
			return setting{}, setting{}, false
		}
		both[i] = setting{v, key + "=" + text}
	}
	return both[0], both[1], true
}

// larger returns the larger of the two (IN_DEV_MAXCONF and IN_DEV_ORCONF in include/linux/inetdevice.h).
func (n *Network) larger(dev, name string) (s setting, ok bool) {
	all, own, ok := n.settings(dev, name)
	if own.value > all.value {
		all = own
	}
	return all, ok
}

// LocalPortRange is the setting with the ports that the kernel gives to sockets that ask for none: the first and the
// last (Documentation/networking/ip-sysctl.rst). They are those of IPv6, too.
const LocalPortRange = "net/ipv4/ip_local_port_range"

// LocalPorts returns these ports. known is false where the setting was not collected, or is not two numbers in order;
// first is then 0, unless it alone is one.
func (n *Network) LocalPorts() (first, last uint16, known bool) {
	p := n.localPorts
	return p.first, p.last, p.known
}

type portRange struct {
	first, last uint16
	known       bool
}

func (n *Network) readLocalPorts() {
	fields := strings.Fields(n.sysctl[LocalPortRange])
	if len(fields) == 0 {
		return
	}
	first, err := strconv.ParseUint(fields[0], 10, 16)
	if err != nil {
		return
	}
	n.localPorts.first = uint16(first)
	if len(fields) != 2 {
		return
	}
	if last, err := strconv.ParseUint(fields[1], 10, 16); err == nil && first <= last {
		n.localPorts.last, n.localPorts.known = uint16(last), true
	}
}
