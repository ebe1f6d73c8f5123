// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// Flags is the part of a command line that decides what is programmed.
type Flags struct {
	Program string // kube-proxy, or what contains it
	// Config is what the flags set, with kube-proxy's defaults for all else.
	Config Config
	// ConfigFile is the argument of --config: kube-proxy then takes the configuration from there, and most flags count for
	// nothing (cmd/kube-proxy/app/options.go, Complete).
	ConfigFile string

	named map[Setting]bool
}

// Tells tells whether the command line settles a setting: of kube-proxy's own also by leaving the flag out, of another
// program's, which has configuration files of its own, by naming it.
func (f *Flags) Tells(s Setting) bool {
	if f.ConfigFile != "" {
		return false
	}
	return f.Program == Process || f.named[s]
}

// flag is one flag of kube-proxy's: the setting that it is a part of ("" for one of which nothing else tells), and what
// it does to the command line that is being read.
type flag struct {
	setting Setting
	set     func(f *Flags, value string) error
}

// flagSet are the flags of kube-proxy that decide what is programmed (cmd/kube-proxy/app/options.go, AddFlags).
var flagSet = map[string]flag{
	"config":     {"", func(f *Flags, v string) error { f.ConfigFile = v; return nil }},
	"proxy-mode": {SettingMode, func(f *Flags, v string) error { f.Config.Mode = v; return nil }},
	"cluster-cidr": {DetectLocal, func(f *Flags, v string) (err error) {
		f.Config.ClusterCIDRs, err = prefixList(v)
		return err
	}},
	"detect-local-mode": {DetectLocal, func(f *Flags, v string) error { f.Config.DetectLocalMode = v; return nil }},
	"pod-bridge-interface": {
		DetectLocal, func(f *Flags, v string) error { f.Config.BridgeInterface = v; return nil },
	},
	"pod-interface-name-prefix": {
		DetectLocal, func(f *Flags, v string) error { f.Config.InterfaceNamePrefix = v; return nil },
	},
	"masquerade-all": {MasqueradeAll, boolFlag(func(c *Config) *bool { return &c.MasqueradeAll })},
	"iptables-masquerade-bit": {MasqueradeBit, func(f *Flags, v string) (err error) {
		f.Config.MasqueradeBit, err = strconv.Atoi(v)
		return err
	}},
	"iptables-localhost-nodeports": {
		LocalNodePorts, boolFlag(func(c *Config) *bool { return &c.LocalhostNodePorts }),
	},
	"nodeport-addresses": {NodePortRanges, func(f *Flags, v string) error {
		f.Config.NodePortAddresses = append(f.Config.NodePortAddresses, words(v)...)
		return nil
	}},
	"ipvs-scheduler": {IPVSScheduler, func(f *Flags, v string) error {
		if v != "" {
			f.Config.Scheduler = v
		}
		return nil
	}},
	"ipvs-strict-arp": {StrictARP, boolFlag(func(c *Config) *bool { return &c.StrictARP })},
	"ipvs-exclude-cidrs": {IPVSExcludeCIDRs, func(f *Flags, v string) error {
		list, err := prefixList(v)
		f.Config.ExcludeCIDRs = append(f.Config.ExcludeCIDRs, list...)
		return err
	}},
	"hostname-override": {"", func(f *Flags, v string) error {
		f.Config.HostnameOverride = strings.ToLower(strings.TrimSpace(v))
		return nil
	}},
	"bind-address": {"", func(f *Flags, v string) error {
		a, ok := ParseAddr(v)
		if !ok {
			return fmt.Errorf("%q is not an IP address", v)
		}
		f.Config.BindAddress = a
		return nil
	}},
	"feature-gates": {FeatureGates, func(f *Flags, v string) error {
		for _, w := range words(v) {
			name, text, _ := strings.Cut(w, "=")
			on, err := strconv.ParseBool(text)
			if err != nil {
				return fmt.Errorf("%q is neither NAME=true nor NAME=false", w)
			}
			if f.Config.FeatureGates == nil {
				f.Config.FeatureGates = map[string]bool{}
			}
			f.Config.FeatureGates[name] = on
		}
		return nil
	}},
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func prefixList(text string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, w := range words(text) {
		p, ok := ParsePrefix(w)
		if !ok {
			return nil, fmt.Errorf("%q is not a CIDR", w)
		}
		out = append(out, p)
	}
	return out, nil
}

// boolFlag reads a flag that may stand alone.
func boolFlag(of func(c *Config) *bool) func(f *Flags, value string) error {
	return func(f *Flags, v string) (err error) {
		if v == "" {
			v = "true"
		}
		*of(&f.Config), err = strconv.ParseBool(v)
		return err
	}
}

// embeddedArgs is the flag by which k3s and RKE2 pass flags on to kube-proxy: NAME=VALUE, as often as one likes.
const embeddedArgs = "kube-proxy-arg"

// FlagNames are the flags of kube-proxy that decide what is programmed, sorted, and those of them that may stand
// without a value.
func FlagNames() (all, valueless []string) {
	return slices.Sorted(maps.Keys(flagSet)), slices.Sorted(maps.Keys(alone))
}

// PickFlags picks from the arguments of a process those that decide what kube-proxy programs, as --NAME=VALUE, in
// their order. It leaves out all others, which may be secrets. program is the name of the process.
func PickFlags(program string, args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		if !strings.HasPrefix(args[i], "-") {
			continue
		}
		name, value, has := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		takes := !has && !alone[name] && i+1 < len(args)
		if program != Process && name != embeddedArgs && name != "cluster-cidr" {
			continue // k3s and kube-proxy have flags of the same name
		}
		if takes && (flagSet[name].set != nil || name == embeddedArgs) {
			i++
			value = args[i]
		}
		if name == embeddedArgs {
			name, value, _ = strings.Cut(strings.TrimLeft(value, "-"), "=")
		}
		if flagSet[name].set != nil {
			out = append(out, "--"+name+"="+value)
		}
	}
	return out
}

// alone are the flags that may stand without a value: the argument behind them is not theirs (pflag, NoOptDefVal).
var alone = map[string]bool{"masquerade-all": true, "iptables-localhost-nodeports": true, "ipvs-strict-arp": true}

// ParseFlags reads the content of the file of flags: the program's name in the first line, then a flag in each, as
// PickFlags returns them. The error says which line is wrong, and what was expected.
func ParseFlags(data []byte) (*Flags, error) {
	if len(data) > bounds.Config {
		return nil, bounds.TooLarge("it", bounds.Config)
	}
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n"), "\n")
	f := &Flags{Program: strings.TrimSpace(lines[0]), Config: DefaultConfig(), named: map[Setting]bool{}}
	if f.Program != Process && !slices.Contains(Embedding, f.Program) {
		return nil, fmt.Errorf("line 1 is %q, where the name of the process was expected: %s, or one of %s", lines[0],
			Process, strings.Join(Embedding, ", "))
	}
	for i, line := range lines[1:] {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "--"), "=")
		x, ok := flagSet[name]
		if !ok {
			return nil, fmt.Errorf("line %d: --%s is not a flag that decides what kube-proxy programs", i+2, name)
		}
		if err := x.set(f, value); err != nil {
			return nil, fmt.Errorf("line %d: --%s: %w", i+2, name, err)
		}
		f.named[x.setting] = true
	}
	if err := check(&f.Config); err != nil {
		return nil, err
	}
	return f, nil
}
