// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// kind is one kind of finding. It is registered once, beside the detector that finds it; docs/findings.md has a section
// for each.
type kind struct {
	code     string
	severity report.Severity
	scope    scope
	remedy   remedy
	// effect is what it means for connections, in a few words, by issue.actual; "" stands for any other. {actual} is
	// issue.actual. A kind without one is named by its code in words: "VIP missing".
	effect map[string]string
	issues []string // upstream, owner/repo#number
	by     finder
}

// The severities by what they make of a verdict.
const (
	mismatch = report.Error
	warning  = report.Warn
	note     = report.Info
)

// scope is what a finding is about.
type scope string

// The scopes.
const (
	onPath scope = "path" // one frontend from one origin
	onNode scope = "node" // a node as a whole
)

// finder is what finds the issues of a kind: a detector, or a place where none can be.
type finder interface{ isFinder() }

// detector finds the differences of some kinds, on a path or on a node.
type detector struct {
	stage stage
	path  func(p *pathCase) []issue
	node  func(n *node) []issue
	asked func(n *node, req *Request) []issue // of a node, for what a request asks for
}

func (*detector) isFinder() {}

// place is where issues are found that no detector can find.
type place uint8

// The places.
const (
	// explanation is mode.explain, which says of the issues that the detectors of a path found where they come from.
	explanation place = iota + 1
	// refusal is newNode: it refuses to judge a node.
	refusal
	// secondReading is [Doubt], which compares two reports.
	secondReading
	// otherPods is worker.forOthers, which compares the paths of several pods.
	otherPods
	// secondExpectation is pathCase.reconsider, which judges a path by other values of kube-proxy's than the likeliest.
	secondExpectation
	// limits is what ends or prevents the judgement of a Service: see [NotJudged].
	limits
	// segments is EndToEnd, which follows connections beyond the node.
	segments
)

func (place) isFinder() {}

// stage is when a detector runs: one after the other, and within a stage in the order of registration.
type stage uint8

// The stages of a path. Between stageProgrammed and stageSettings the mode says where each difference comes from.
const (
	// stageRecognise: who else answers. A detector that knows calls pathCase.settle, and the comparison is left out.
	stageRecognise  stage = iota
	stageCompare          // what happens against what must
	stageHairpin          // the same for a pod that reaches itself
	stageAffinity         // the same for a client that comes back
	stageProgrammed       // what the command program has put there
	stageSettings         // settings of the kernel that stop what the rules make right
	stageAnswers          // what comes behind the first packet, where that is all right
	stageVerdict          // what else the verdict depends on
	stageOnward           // what the verdict depends on behind the first packet
	stageByDesign         // what the API asks for, where nothing is wrong
	stageObserve          // what real connections showed
)

// The stages of a node.
const (
	stageRules       stage = iota // of kube-proxy as a whole
	stageLeftovers                // of other modes
	stageStatus                   // of kube-proxy itself
	stageConnections              // of the kernel's connection table
	stageDuplicates
	stageBackwards // from the rules to the API, where that is asked for
	stageCoverage  // of what is not judged
	stageAsked     // of the frontends asked for
)

// kinds are those registered, by code; codes are theirs in the order of registration.
var (
	kinds = map[string]*kind{}
	codes []string
)

// register adds a kind. It is called where the kind's detector stands, to initialise a variable without a name.
func register(k kind) bool { //nolint:unparam // a variable needs a value
	kinds[k.code] = &k
	codes = append(codes, k.code)
	return true
}

// detectors returns those of a scope, in the order in which they run.
func detectors(s scope) []*detector {
	var out []*detector
	for _, code := range codes {
		if d, ok := kinds[code].by.(*detector); ok && kinds[code].scope == s && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	slices.SortStableFunc(out, func(a, b *detector) int { return int(a.stage) - int(b.stage) })
	return out
}

// KindInfo is what the documentation says of a kind of finding.
type KindInfo struct {
	Code, Scope string
	Severity    report.Severity
	Issues      []string // upstream, owner/repo#number
}

// Kinds returns what the documentation says of every kind of finding, by code.
func Kinds() []KindInfo {
	out := make([]KindInfo, 0, len(kinds))
	for _, code := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[code]
		out = append(out, KindInfo{code, string(k.scope), k.severity, k.issues})
	}
	return out
}

// issue is a difference before it is written up as a finding.
type issue struct {
	code, subject    string
	endpoints        []string // that it is about, all of them; subject may name some
	expected, actual string
	// message says what was found. With predicate it is what is said of the subject, which the finding's message begins
	// with: "is in no EndpointSlice".
	message       string
	predicate     bool
	where         netfilter.Ref
	evidence      []report.Evidence
	unmasqueraded bool       // of WrongMasquerade: the source stays what it is, and should be translated
	own           netip.Addr // of that: the node's own address, which its packets keep, and get answers at

	// These take the place of what the kind has; "" and false leave it.
	severity report.Severity
	remedy   report.Remedy
	unlinked bool
	client   report.Client
}

// finding writes up an issue. Nothing in it keeps the text of the node's rules alive.
func (n *node) finding(i issue) report.Finding {
	k := kinds[i.code]
	f := report.Finding{
		Code: k.code, Severity: k.severity, Subject: strings.Clone(i.subject), Endpoints: i.endpoints,
		Expected: i.expected, Actual: i.actual, Message: i.message, Effect: k.effectOf(i.actual), Client: i.client,
	}
	if f.Client == (report.Client{}) {
		f.Client = n.clientOf(&i)
	}
	for _, e := range i.evidence {
		if e != (report.Evidence{}) {
			f.Evidence = append(f.Evidence, e)
		}
	}
	if i.severity != "" {
		f.Severity = i.severity
	}
	if i.predicate {
		f.Message, f.Predicate = f.Subject+" "+i.message, i.message
	}
	remedy := i.remedy
	if remedy.IsZero() {
		remedy = n.advise(k.remedy, &i)
	}
	remedy = n.harmless(remedy)
	f.Remedy, f.Commands = remedy.Text, remedy.Commands
	if !i.unlinked {
		f.Links = links(k, n.shown.KubeProxyVersion)
	}
	return f
}

// effectOf says what a finding means for connections; "" where the code says it, and where the effect names what is not
// known.
func (k *kind) effectOf(actual string) string {
	text, ok := k.effect[actual]
	if !ok {
		text = k.effect[""]
	}
	if actual == "" && strings.Contains(text, "{actual}") {
		return ""
	}
	return strings.ReplaceAll(text, "{actual}", actual)
}

func (n *node) findings(issues []issue) []report.Finding {
	out := make([]report.Finding, 0, len(issues))
	for _, is := range issues {
		out = append(out, n.finding(is))
	}
	return out
}

// grouped collects evidence by subject, for one issue each.
type grouped struct {
	like     issue
	subjects map[string]*issue
}

func newGrouped(like issue) *grouped { return &grouped{like, map[string]*issue{}} }

func (g *grouped) add(subject string, evidence report.Evidence) {
	is := g.subjects[subject]
	if is == nil {
		copied := g.like
		is, copied.subject = &copied, subject
		g.subjects[subject] = is
	}
	is.evidence = append(is.evidence, evidence)
}

// issues returns one issue for each subject, in their order; what names one piece of evidence: they are counted.
func (g *grouped) issues(code, what string) []issue {
	out := make([]issue, 0, len(g.subjects))
	for _, subject := range slices.Sorted(maps.Keys(g.subjects)) {
		is := g.subjects[subject]
		is.code, is.actual = code, number(len(is.evidence), what)
		is.evidence = is.evidence[:min(len(is.evidence), maxEvidence)]
		out = append(out, *is)
	}
	return out
}
