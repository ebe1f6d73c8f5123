// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Findings about a Service's name, by what the pod's name servers answered.
const (
	// DNSAnswer says that the name is something else than the Service.
	DNSAnswer = "DNSAnswer"
	// DNSNoAnswer says that no server answers.
	DNSNoAnswer = "DNSNoAnswer"
)

var (
	_ = register(kind{
		code: DNSAnswer, severity: mismatch, scope: onPath, by: segments,
		remedy: advice("compare the answer with the Service: where the cluster's DNS has it wrong, look at its log (it "+
			"follows the API by a watch); where another server answers, correct the pod's DNS settings", dnsLog),
	})
	_ = register(kind{
		code: DNSNoAnswer, severity: mismatch, scope: onPath, by: segments,
		remedy: advice("trace the DNS Service from the same pod, and look at the log of the cluster's DNS", dnsLog),
	})
)

// dnsLog prints the log of the cluster's DNS, whose pods have this label in most installations.
var dnsLog = command{
	line: "kubectl logs -n kube-system -l k8s-app=kube-dns --tail=50", when: "to see the log of the cluster's DNS",
}

// maxAsked is how many names the search list makes of one, that are asked for.
const maxAsked = 8

// NameQuestions are what the client's pod would ask for the Service's name, as glibc does: the first server for the
// shortest form of the name, by the search list up to the whole name, and for that over TCP, too; the other servers for
// the whole name. It is empty where the pod's resolv.conf was not read.
func NameQuestions(c *Cluster, ends *Ends) []snapshot.NameQuestion {
	t := newTour(c, ends)
	svc := c.services[ends.Service]
	if t == nil || svc == nil || ends.Pod == "" {
		return nil
	}
	n, _ := t.naming(svc)
	if n == nil || n.conf == nil {
		return nil
	}
	var out []snapshot.NameQuestion
	for _, kind := range n.types() {
		for _, name := range n.names() {
			out = append(out, n.question(0, name, kind, n.conf.TCP))
		}
		if !n.conf.TCP {
			out = append(out, n.question(0, n.full, kind, true))
		}
		for i := 1; i < len(n.conf.Servers); i++ {
			out = append(out, n.question(i, n.full, kind, n.conf.TCP))
		}
	}
	return out
}

func (n *naming) question(server int, name, kind string, tcp bool) snapshot.NameQuestion {
	return snapshot.NameQuestion{
		Server: netip.AddrPortFrom(n.conf.Servers[server], dnsPort), Name: name, Type: kind, TCP: tcp,
	}
}

// types are the types of records to ask for: those that there should be.
func (n *naming) types() (out []string) {
	for _, kind := range []string{"A", "AAAA"} {
		if slices.ContainsFunc(n.want, func(a netip.Addr) bool { return a.Is4() == (kind == "A") }) {
			out = append(out, kind)
		}
	}
	if out == nil {
		return []string{"A"}
	}
	return out
}

// names are what glibc asks for the shortest form of the name that leads to the whole one, up to that.
func (n *naming) names() []string {
	form := n.svc.Name + "." + n.svc.Namespace
	if n.namespace() == n.svc.Namespace {
		form = n.svc.Name
	}
	list := n.conf.Glibc(form)
	if i := slices.Index(list, n.full); i >= 0 && i < maxAsked {
		return list[:i+1]
	}
	return []string{n.full}
}

// asked puts what was answered in place of what can be said without asking.
func (n *naming) asked(out *named) {
	s := &out.segment
	var right []string
	for _, kind := range n.types() {
		verdict := n.answered(kind)
		if verdict.Verdict == report.SegmentUnknown {
			return // it was not asked for
		}
		if verdict.Verdict == report.SegmentWrong {
			// What keeps questions from getting there is the cause, where it is known.
			if verdict.Code == DNSNoAnswer && s.Verdict == report.SegmentWrong {
				s.Evidence = append(s.Evidence, say("asked: "+verdict.Message)...)
				return
			}
			verdict.Place, verdict.Segment = s.Place, s.Segment
			*s = verdict
			return
		}
		right = append(right, verdict.Message)
	}
	*s = report.Segment{
		Segment: report.SegmentName, Place: s.Place, Verdict: report.SegmentRight, Message: strings.Join(right, "; "),
	}
	for i := range n.ends.Answers.List {
		a := &n.ends.Answers.List[i]
		if a.TCP && !n.conf.TCP && a.Error != "" {
			s.Verdict, s.Code = report.SegmentUnknown, DNSOverTCPUnreachable
			s.Message += "; over TCP " + a.Server.Addr().String() + " does not answer: " + a.Error
			break
		}
	}
}

// answerOf finds the answer to a question.
func (n *naming) answerOf(q snapshot.NameQuestion) *snapshot.NameAnswer {
	for i := range n.ends.Answers.List {
		if a := &n.ends.Answers.List[i]; a.NameQuestion == q {
			return a
		}
	}
	return nil
}

// answered judges the answers for one type of records, as glibc takes them: the next name of the search list where one
// does not exist, the next server where one does not answer.
func (n *naming) answered(kind string) report.Segment {
	wrong := func(code, format string, args ...any) report.Segment {
		return report.Segment{Verdict: report.SegmentWrong, Code: code, Message: fmt.Sprintf(format, args...)}
	}
	var silent, missing []string
	for _, name := range n.names() {
		a := n.answerOf(n.question(0, name, kind, n.conf.TCP))
		for i := 1; i < len(n.conf.Servers) && a != nil && a.Error != "" && name == n.full; i++ {
			silent = append(silent, a.Server.Addr().String()+": "+a.Error)
			a = n.answerOf(n.question(i, name, kind, n.conf.TCP))
		}
		switch {
		case a == nil:
			return report.Segment{Verdict: report.SegmentUnknown}
		case a.Error != "":
			silent = append(silent, a.Server.Addr().String()+": "+a.Error)
			continue
		case a.Code != "NOERROR" && a.Code != "NXDOMAIN":
			silent = append(silent, a.Server.Addr().String()+": "+a.Code)
			continue
		case len(a.Addresses) == 0 && a.Alias == "":
			missing = append(missing, a.Server.Addr().String()+" answers "+a.Code+" for "+name)
			continue
		}
		if why := n.differs(a); why != "" {
			return wrong(DNSAnswer, "%s is %s by %s, expected: %s", name, why, a.Server.Addr(), n.expected())
		}
		text := fmt.Sprintf("%s is %s, as %s answers", name, cut(texts(a.Addresses), 4), a.Server.Addr())
		if a.Alias != "" {
			text = fmt.Sprintf("%s is another name for %s, as %s answers", name, a.Alias, a.Server.Addr())
		}
		if len(silent) > 0 {
			text += " (before: " + cut(silent, 4) + ")"
		}
		return report.Segment{Verdict: report.SegmentRight, Message: text}
	}
	switch {
	case len(missing) == 0 || len(silent) > 0:
		s := wrong(DNSNoAnswer, "nothing answers for %s: %s", n.full, cut(silent, 4))
		if n.conf.TCP {
			return s
		}
		udp, tcp := n.answerOf(n.question(0, n.full, kind, false)), n.answerOf(n.question(0, n.full, kind, true))
		if udp != nil && udp.Error != "" && tcp != nil && tcp.Error == "" {
			s.Message += "; over TCP " + tcp.Server.Addr().String() + " does answer"
		}
		return s
	case len(n.want) == 0 && n.alias == "":
		return report.Segment{
			Verdict: report.SegmentRight, Message: n.full + " has no address, as no endpoint is ready",
		}
	}
	return wrong(DNSAnswer, "%s does not exist: %s; expected: %s", n.full, cut(missing, 4), n.expected())
}

// differs says what a name is, where that is not the Service; "" where it is. Of a headless Service some endpoint has
// to be among the addresses: answers are kept for a while, and the endpoints of the API may be newer.
func (n *naming) differs(a *snapshot.NameAnswer) string {
	if n.alias != "" {
		if strings.EqualFold(a.Alias, n.alias) {
			return ""
		}
		if a.Alias != "" {
			return a.Alias
		}
		return cut(texts(a.Addresses), 4)
	}
	known := func(x netip.Addr) bool { return slices.Contains(n.want, x.Unmap()) }
	same := !slices.ContainsFunc(a.Addresses, func(x netip.Addr) bool { return !known(x) })
	if n.svc.Spec.ClusterIP == corev1.ClusterIPNone {
		same = slices.ContainsFunc(a.Addresses, known)
	}
	if same && len(a.Addresses) > 0 {
		return ""
	}
	is := texts(a.Addresses)
	if a.Alias != "" {
		is = append(is, a.Alias)
	}
	return cut(is, 4)
}
