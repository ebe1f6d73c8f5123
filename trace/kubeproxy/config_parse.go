// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// SourceDefaults is the Config.Source of a configuration that was not found.
const SourceDefaults = "defaults"

// The API of kube-proxy's configuration.
const (
	configGroup   = "kubeproxy.config.k8s.io"
	configVersion = configGroup + "/v1alpha1"
	configKind    = "KubeProxyConfiguration"
)

// defaultMasqueradeBit is the default of iptables.masqueradeBit (pkg/proxy/apis/config/v1alpha1/defaults.go).
const defaultMasqueradeBit = 14

// defaultScheduler is the scheduler of ipvs mode where ipvs.scheduler is not set (pkg/proxy/ipvs/proxier.go).
const defaultScheduler = "rr"

// DefaultConfig returns the configuration of a kube-proxy without settings
// (pkg/proxy/apis/config/v1alpha1/defaults.go). Settings without a meaningful default count as unknown then.
func DefaultConfig() Config {
	return Config{
		Source: SourceDefaults, MasqueradeBit: defaultMasqueradeBit, LocalhostNodePorts: true, Scheduler: defaultScheduler,
	}
}

// file is the part of KubeProxyConfiguration v1alpha1 that Config needs. Up to 1.30 configz shows the internal type
// instead, whose fields have the same names but for their case, or are in other places (detectLocal.clusterCIDRs,
// linux).
type file struct {
	APIVersion       string `json:"apiVersion,omitzero"`
	Kind             string `json:"kind,omitzero"`
	Mode             string `json:"mode,omitzero"`
	HostnameOverride string `json:"hostnameOverride,omitzero"`
	BindAddress      string `json:"bindAddress,omitzero"`
	ClusterCIDR      string `json:"clusterCIDR,omitzero"`
	DetectLocalMode  string `json:"detectLocalMode,omitzero"`
	DetectLocal      struct {
		BridgeInterface     string   `json:"bridgeInterface,omitzero"`
		InterfaceNamePrefix string   `json:"interfaceNamePrefix,omitzero"`
		ClusterCIDRs        []string `json:"clusterCIDRs,omitzero"`
	} `json:"detectLocal,omitzero"`
	IPTables struct {
		masquerade
		syncing

		LocalhostNodePorts *bool `json:"localhostNodePorts,omitzero"`
	} `json:"iptables,omitzero"`
	NFTables struct {
		masquerade
		syncing
	} `json:"nftables,omitzero"`
	IPVS struct {
		syncing

		Scheduler    string   `json:"scheduler,omitzero"`
		StrictARP    bool     `json:"strictARP,omitzero"`
		ExcludeCIDRs []string `json:"excludeCIDRs,omitzero"`
	} `json:"ipvs,omitzero"`
	Linux struct {
		MasqueradeAll bool `json:"masqueradeAll,omitzero"`
	} `json:"linux,omitzero"`
	MetricsBindAddress string `json:"metricsBindAddress,omitzero"`
	HealthzBindAddress string `json:"healthzBindAddress,omitzero"`
	// MinSyncPeriod is that of all modes, in the internal type since 1.31.
	syncing

	NodePortAddresses []string        `json:"nodePortAddresses,omitzero"`
	FeatureGates      map[string]bool `json:"featureGates,omitzero"`
}

// masquerade is what a mode's section has of masquerading.
type masquerade struct {
	MasqueradeBit *int `json:"masqueradeBit,omitzero"`
	MasqueradeAll bool `json:"masqueradeAll,omitzero"`
}

// syncing is what a mode's section has of syncs. Another value than a text decides on nothing.
type syncing struct {
	MinSyncPeriod any `json:"minSyncPeriod,omitzero"`
}

// minSyncPeriod returns the least time between two syncs of the configured mode; 0: it is not set, or cannot be read.
func (f *file) minSyncPeriod() time.Duration {
	of := f.IPTables.syncing
	switch f.Mode {
	case NFTables:
		of = f.NFTables.syncing
	case IPVS:
		of = f.IPVS.syncing
	}
	text, _ := of.MinSyncPeriod.(string)
	general, _ := f.MinSyncPeriod.(string)
	d, err := time.ParseDuration(cmp.Or(text, general))
	if err != nil || d < 0 {
		return 0
	}
	return d
}

// ownMasquerade are the modes whose own section has it, and that section; other modes have that of iptables mode.
var ownMasquerade = map[string]func(f *file) *masquerade{
	NFTables: func(f *file) *masquerade { return &f.NFTables.masquerade },
}

// ParseConfig reads a KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1), YAML or JSON, and fills in the
// defaults as kube-proxy does (pkg/proxy/apis/config/v1alpha1). Of several YAML documents it takes the one of that
// kind. Source is left to the caller.
func ParseConfig(data []byte) (Config, error) {
	if len(data) > bounds.Config {
		return Config{}, bounds.TooLarge("it", bounds.Config)
	}
	docs := documents(string(data))
	if len(docs) > maxDocuments {
		return Config{}, bounds.Errorf("it holds more than %d YAML documents: at most %d were expected", maxDocuments,
			maxDocuments)
	}
	for _, doc := range docs {
		f, err := decode(doc)
		if err != nil {
			return Config{}, err
		}
		if f.Kind != configKind && len(docs) > 1 {
			continue
		}
		if f.Kind != configKind {
			return Config{}, fmt.Errorf("kind is %q, where %s was expected", f.Kind, configKind)
		}
		if f.APIVersion != configVersion {
			return Config{}, fmt.Errorf("apiVersion is %q, where %s was expected", f.APIVersion, configVersion)
		}
		return f.config()
	}
	return Config{}, errors.New("it holds no " + configKind)
}

// Addresses are where a configuration has kube-proxy answer, as it names them: ADDRESS:PORT or ADDRESS; "" where it
// does not.
type Addresses struct{ Metrics, Healthz string }

// AddressesOf reads a configuration that [ReduceConfig] has made.
func AddressesOf(reduced []byte) Addresses {
	f, err := decode(string(reduced))
	if err != nil {
		return Addresses{}
	}
	return Addresses{f.MetricsBindAddress, f.HealthzBindAddress}
}

// ReduceConfig reduces the KubeProxyConfiguration in a file to the fields that decide something here. The error says
// that there is none, and nothing of what is there: a command line may name any file.
func ReduceConfig(data []byte) ([]byte, error) {
	docs := documents(string(data))
	if len(data) > bounds.Config || len(docs) > maxDocuments {
		return nil, errNotConfig
	}
	for _, doc := range docs {
		f, err := decode(doc)
		if err != nil || f.APIVersion != configVersion || f.Kind != configKind {
			continue
		}
		return yaml.Marshal(f)
	}
	return nil, errNotConfig
}

// ReduceConfigz is [ReduceConfig] of the response of kube-proxy's /configz.
func ReduceConfigz(data []byte) ([]byte, error) {
	var all map[string]json.RawMessage
	if len(data) > bounds.Config || bounds.NodeJSON.Check("it", data) != nil || json.Unmarshal(data, &all) != nil ||
		all[configGroup] == nil {
		return nil, errNotConfig
	}
	f, err := decode(string(all[configGroup]))
	if err != nil {
		return nil, errNotConfig
	}
	return json.Marshal(map[string]*file{configGroup: f})
}

// errNotConfig says that what was read is no configuration.
var errNotConfig = errors.New("it is not a " + configKind)

// maxDocuments is how many YAML documents a configuration may hold; a kube-proxy reads one.
const maxDocuments = 20

// documents splits YAML into its documents, without the empty ones.
func documents(data string) []string {
	var docs []string
	for doc := range strings.SplitSeq("\n"+strings.ReplaceAll(data, "\r\n", "\n"), "\n---") {
		if strings.TrimSpace(doc) != "" {
			docs = append(docs, doc)
		}
	}
	return docs
}

func decode(doc string) (*file, error) {
	f := &file{}
	if err := bounds.CheckYAML("it", []byte(doc)); err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal([]byte(doc), f); err != nil {
		return nil, fmt.Errorf("it is not a %s: %w", configKind, err)
	}
	return f, nil
}

// ParseConfigz reads the response of kube-proxy's /configz: {"kubeproxy.config.k8s.io": {…}}. What is in it is the
// internal type, with Go's names of its fields, up to 1.33 at least (cmd/kube-proxy/app/server.go: cz.Set), and
// v1alpha1 later; the names differ in case only. Source is left to the caller.
func ParseConfigz(data []byte) (Config, error) {
	if len(data) > bounds.Config {
		return Config{}, bounds.TooLarge("it", bounds.Config)
	}
	if err := bounds.NodeJSON.Check("it", data); err != nil {
		return Config{}, err
	}
	var all map[string]any
	if err := json.Unmarshal(data, &all); err != nil {
		return Config{}, fmt.Errorf("it is not a JSON object: %w", err)
	}
	inner, ok := all[configGroup]
	if !ok {
		return Config{}, fmt.Errorf("it has no field %q: it is not the /configz of a kube-proxy", configGroup)
	}
	doc, err := yaml.Marshal(inner)
	if err != nil {
		return Config{}, fmt.Errorf("field %q: %w", configGroup, err)
	}
	f, err := decode(string(doc))
	switch {
	case err != nil:
		return Config{}, fmt.Errorf("field %q: %w", configGroup, err)
	case f.APIVersion != "" && f.APIVersion != configVersion: // the internal type has none
		return Config{}, fmt.Errorf("field %q: apiVersion is %q, where %s was expected", configGroup, f.APIVersion,
			configVersion)
	}
	return f.config()
}

// configKeys are the keys under which installers store the configuration: kubeadm, EKS and others.
var configKeys = []string{
	"config.conf", "config", "kube-proxy-config", "config.yaml", "kube-proxy.yaml", "kubeproxy.conf",
}

// ParseConfigMap reads the ConfigMap that holds kube-proxy's configuration: kubeadm's key config.conf, else another
// usual key, else any key that holds one. Source is left to the caller.
func ParseConfigMap(cm *corev1.ConfigMap) (Config, error) {
	for _, key := range configKeys {
		if data, ok := cm.Data[key]; ok {
			return parseKey(key, data)
		}
	}
	keys := slices.Sorted(maps.Keys(cm.Data))
	for _, key := range keys {
		if strings.Contains(cm.Data[key], configKind) {
			return parseKey(key, cm.Data[key])
		}
	}
	return Config{}, fmt.Errorf("%w: its keys are %s", errNoConfig, strings.Join(keys, ", "))
}

func parseKey(key, data string) (Config, error) {
	c, err := ParseConfig([]byte(data))
	if err != nil {
		return Config{}, fmt.Errorf("key %s: %w", key, err)
	}
	return c, nil
}

// config checks the fields and fills in defaults.
func (f *file) config() (Config, error) {
	c := Config{
		Mode: f.Mode, DetectLocalMode: f.DetectLocalMode, BridgeInterface: f.DetectLocal.BridgeInterface,
		InterfaceNamePrefix: f.DetectLocal.InterfaceNamePrefix, MasqueradeBit: defaultMasqueradeBit, LocalhostNodePorts: true,
		NodePortAddresses: f.NodePortAddresses, HostnameOverride: strings.ToLower(strings.TrimSpace(f.HostnameOverride)),
		FeatureGates: f.FeatureGates, StrictARP: f.IPVS.StrictARP, MinSyncPeriod: f.minSyncPeriod(),
	}
	m := &f.IPTables.masquerade
	if of := ownMasquerade[f.Mode]; of != nil {
		m = of(f)
	}
	c.MasqueradeAll = m.MasqueradeAll || f.Linux.MasqueradeAll
	if m.MasqueradeBit != nil {
		c.MasqueradeBit = *m.MasqueradeBit
	}
	if c.Scheduler = f.IPVS.Scheduler; c.Scheduler == "" {
		c.Scheduler = defaultScheduler
	}
	if f.IPTables.LocalhostNodePorts != nil {
		c.LocalhostNodePorts = *f.IPTables.LocalhostNodePorts
	}
	if err := f.fillCIDRs(&c); err != nil {
		return Config{}, err
	}
	err := check(&c)
	return c, err
}

func (f *file) fillCIDRs(c *Config) error {
	if f.BindAddress != "" {
		a, ok := ParseAddr(f.BindAddress)
		if !ok {
			return fmt.Errorf("bindAddress %q is not an IP address", f.BindAddress)
		}
		c.BindAddress = a
	}
	for _, s := range f.IPVS.ExcludeCIDRs {
		p, ok := ParsePrefix(strings.TrimSpace(s))
		if !ok {
			return fmt.Errorf("ipvs.excludeCIDRs has %q, which is not a CIDR", s)
		}
		c.ExcludeCIDRs = append(c.ExcludeCIDRs, p)
	}
	cidrs := f.DetectLocal.ClusterCIDRs
	if f.ClusterCIDR != "" {
		cidrs = strings.Split(f.ClusterCIDR, ",")
	}
	for _, s := range cidrs {
		p, ok := ParsePrefix(strings.TrimSpace(s))
		if !ok {
			return fmt.Errorf("clusterCIDR has %q, which is not a CIDR", s)
		}
		c.ClusterCIDRs = append(c.ClusterCIDRs, p)
	}
	return nil
}

// check refuses values that kube-proxy refuses (pkg/proxy/apis/config/validation), but for the mode: which ones there
// are is for the judgement to say.
func check(c *Config) error {
	switch c.DetectLocalMode {
	case "", DetectClusterCIDR, DetectNodeCIDR, DetectBridge, DetectNamePrefix:
	default:
		return fmt.Errorf("detectLocalMode is %q, where %s, %s, %s or %s was expected", c.DetectLocalMode, DetectClusterCIDR,
			DetectNodeCIDR, DetectBridge, DetectNamePrefix)
	}
	if c.MasqueradeBit < 0 || c.MasqueradeBit > 31 {
		return fmt.Errorf("masqueradeBit is %d, where 0 to 31 was expected", c.MasqueradeBit)
	}
	for _, s := range c.NodePortAddresses {
		if _, ok := ParsePrefix(s); !ok && s != "primary" && s != "localhost" && s != "all" {
			return fmt.Errorf("nodePortAddresses has %q, which is neither a CIDR nor primary, localhost or all", s)
		}
	}
	return nil
}
