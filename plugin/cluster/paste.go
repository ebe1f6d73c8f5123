// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
)

// quotes are what texts are put in where people copy them from: chats, tickets, JSON, Markdown.
var quotes = [][2]string{
	{`"`, `"`}, {"'", "'"}, {"`", "`"}, {"“", "”"}, {"‘", "’"}, {"„", "“"}, {"«", "»"}, {"<", ">"}, {"(", ")"},
}

// listMark is what a line of a list or of a quotation begins with, and markdownLink a link of Markdown.
var (
	listMark     = lazyregexp.New(`^(?:[*•·-] +|[>#]+ *)`)
	markdownLink = lazyregexp.New(`^\[[^]]*\]\(([^)\s]+)\)$`)
)

// Tidy takes off what is around a name or an address where it is copied from: spaces, quotes, the punctuation of a
// sentence, the mark of a list. Characters of full width and dashes of any length become those of ASCII, and invisible
// ones go.
func Tidy(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r >= '！' && r <= '～':
			return r - '！' + '!'
		case unicode.IsSpace(r):
			return ' '
		case IsDash(r):
			return '-'
		case r >= '\u200b' && r <= '\u200f' || r == '\ufeff' || r == '\u2060':
			return -1
		}
		return r
	}, text)
	for {
		before := text
		text = strings.TrimRight(strings.TrimSpace(text), ",;.?!…")
		text = listMark().ReplaceAllString(text, "")
		text = markdownLink().ReplaceAllString(text, "$1")
		for _, q := range quotes {
			if inner, ok := strings.CutPrefix(text, q[0]); ok && strings.HasSuffix(inner, q[1]) {
				text = strings.TrimSuffix(inner, q[1])
			}
		}
		if text == before {
			return text
		}
	}
}

// IsDash tells whether a character is a dash that editors and chats put in the place of "-".
func IsDash(r rune) bool {
	return r >= '\u2010' && r <= '\u2015' || r == '\u2212' || r == '\ufe58' || r == '\ufe63'
}

// namespaceFlags are those of kubectl, behind or before the names in a text: svc/web -n shop.
var namespaceFlags = lazyregexp.New(`^(?:(?:-n|--namespace)[ =]?([a-z0-9-]+) )?` +
	`(\S+(?: [^-\s]\S*)?)(?: (?:-n|--namespace)[ =]?([a-z0-9-]+))?$`)

// cutNamespace puts the namespace of such a flag before the name.
func cutNamespace(text string) string {
	m := namespaceFlags().FindStringSubmatch(text)
	if len(m) != 4 || (m[1] == "") == (m[3] == "") {
		return text
	}
	namespace, name := m[1]+m[3], m[2]
	kind, of, two := strings.Cut(strings.Replace(name, " ", "/", 1), "/")
	switch _, known := KindOf(kind); {
	case !two && isLabel(strings.SplitN(name, ":", 2)[0]):
		return namespace + "/" + name
	case two && known && !strings.Contains(of, "/"):
		return kind + "/" + namespace + "/" + of
	}
	return text
}

// The forms in which tools print an address or a name with a port.
var (
	digPort     = lazyregexp.New(`^([0-9a-fA-F.:]+)#(\d+)(?:\(\S+\))?$`)          // 10.96.0.10#53(10.96.0.10)
	tcpdumpPort = lazyregexp.New(`^(\d+\.\d+\.\d+\.\d+)\.(\d+)$`)                 // 10.96.0.10.53
	nftPort     = lazyregexp.New(`^(\S+) \. (?:(tcp|udp|sctp) \. )?(\d+)$`)       // 10.96.0.10 . udp . 53
	wordsPort   = lazyregexp.New(`^([^\s:]+|\[\S+\]) +(?:port )?(\d+)$`)          // 10.96.0.10 port 53
	namePath    = lazyregexp.New(`^([^/\s:]+\.svc(?:\.[^/\s:]+)?)/\S*$`)          // web.shop.svc/healthz
	portOf      = lazyregexp.New(`(\S+) port (\d+)`)                              // in a sentence
	anyAddress  = lazyregexp.New(`^(?:\*|0\.0\.0\.0|\[::\]|::):(\d+)$`)           // 0.0.0.0:30080
	pastedPath  = lazyregexp.New(`^([^/\s]+/[^/\s]+|[^/\s]+/[^/\s]+/[^/\s]+)/+$`) // shop/web/
)

var (
	// nodePort is a NodePort with its kind, as this tool and kubectl describe print it: NodePort 30080, NodePort: http
	// 30080/TCP.
	nodePort = lazyregexp.New(`^(?:Node[Pp]ort[ :/=]+(?:[a-z][a-z0-9-]* +)?|node-?port )(\d+)(?:/[A-Z]+)?$`)
	// resolved is an address behind the name that it was found for (Java: web.shop/10.96.0.7:80), or behind the word for
	// what it is (gRPC: ipv4:10.96.0.7:80).
	resolved = lazyregexp.New(`^(?:[\w.-]*/|[a-z][a-z_]+4?:)(\d+\.\d+\.\d+\.\d+:\d+)$`)
	// envoyCluster is what a service mesh calls a Service in its logs: outbound|80||web.shop.svc.cluster.local.
	envoyCluster = lazyregexp.New(`\boutbound\|(\d+)\|[^|\s]*\|([^|\s]+)`)
	// forwarded is the Service of kubectl port-forward, with its port.
	forwarded = lazyregexp.New(`^(?:[$#] )?(?:kubectl|oc) (?:.* )?port-forward (?:.* )?(?:svc|services?)/(\S+) ` +
		`(?:\d*:)?(\d+)\b`)
	// anyNamespace is a flag of kubectl, wherever it stands.
	anyNamespace = lazyregexp.New(` (?:-n|--namespace)[ =]?([a-z0-9-]+)\b`)
)

// What else is copied with an address or a name.
var (
	kubectlLine = lazyregexp.New(`^(?:[$#] )?(?:kubectl|oc|k) `)
	// WEB_PORT=tcp://10.96.21.191:80
	variable = lazyregexp.New(`^(?:export )?[A-Z][A-Z0-9_]*=["']?([^\s"']+)["']?$`)
	// http:/web.shop, http//web.shop, https:web.shop.svc
	brokenURL = lazyregexp.New(`^(https?|wss?)(?:(?::/|//|:/{3,})([^/].*)|:([a-z][^/:]*\..*))$`)
)

// overUDP is a command of a client that sends UDP.
var overUDP = lazyregexp.New(`^(?:[$#] )?(?:nc|ncat|netcat)\b.* -[a-z]*u`)

// clients are commands that connect to a name or an address, and their port.
var clients = []lazyregexp.Regexp{
	lazyregexp.New(`^(?:[$#] )?(?:nc|ncat|netcat|telnet|ping6?)(?: -\S+(?: \d+)?)* ([^-\s:][^\s:]*)(?: (\d+))?$`),
	lazyregexp.New(`^(?:[$#] )?(?:curl|wget|nslookup|host|mtr|tracepath|traceroute6?|getent a?hosts(?:v[46])?)` +
		`(?: -\S+(?: (?:\d[\w.]*|/\S+))?)* ([a-z0-9][^\s/:]*)(?::(\d+))?(?:/\S*)?(?: -\S+| \d[\d.]+)*$`),
	lazyregexp.New(`^(?:[$#] )?tcptraceroute(?: -\S+)* ([a-z0-9][^\s:]*)(?: (\d+))?$`),
	lazyregexp.New(`^Connection to ([^\s()]+)(?: \([^)]*\))? (\d+) port `), // nc
	lazyregexp.New(`^(?:[$#] )?dig(?: [-+@]\S+)* ([a-z0-9][^\s/:]*)()(?: [-+@]\S+| A{1,4})*$`),
	lazyregexp.New(`\bserver (?:at|on) ["']([^"':]+)["'](?: \([^)]*\))?,?(?: port (\d+))?`), // psql, mysql
	lazyregexp.New(`^(?:[$#] )?(?:mysql|mariadb|psql|pg_isready|redis-cli)\b.* -h ?([^\s:]+)(?:.* -[pP] ?(\d+))?`),
}

// bare takes off what is copied with an address or a name: a command before it, the name of a variable.
func bare(text string) string {
	if m := forwarded().FindStringSubmatch(text); m != nil {
		namespace := ""
		if of := anyNamespace().FindStringSubmatch(text); of != nil {
			namespace = of[1] + "/"
		}
		return "service/" + namespace + m[1] + ":" + m[2]
	}
	if m := envoyCluster().FindStringSubmatch(text); m != nil {
		return m[2] + ":" + m[1]
	}
	if before := kubectlLine().FindString(text); before != "" && isKubectl(before, text[len(before):]) {
		text = ofKubectl(text[len(before):])
	}
	text = cutNamespace(text)
	for _, c := range clients {
		if m := c().FindStringSubmatch(text); m != nil {
			if m[2] != "" && overUDP().MatchString(text) {
				return m[1] + ":" + m[2] + "/udp"
			}
			return strings.TrimSuffix(m[1]+":"+m[2], ":")
		}
	}
	if m := variable().FindStringSubmatch(text); m != nil {
		return m[1]
	}
	if m := brokenURL().FindStringSubmatch(text); m != nil {
		return m[1] + "://" + m[2] + m[3]
	}
	kind, name, two := strings.Cut(text, " ")
	if _, known := KindOf(kind); two && known && !strings.Contains(kind, "/") && objectName().MatchString(name) {
		return kind + "/" + name
	}
	return text
}

// comment is that of a rule of kube-proxy's in iptables mode: shop/web:http cluster IP.
var comment = lazyregexp.New(`^([a-z0-9-]+/[a-z0-9-]+(?::[a-z0-9-]+)?) ` +
	`(?:(?:cluster|external|loadbalancer) IP|has no |-> )`)

// listedObject is a line of kubectl get, where it lists several kinds: deployment.apps/web   3/3   3   3   5d.
var listedObject = lazyregexp.New(`^([a-z.0-9]+/[a-z0-9.-]+) +` +
	`(?:\d+(?:/\d+)? |(?:ClusterIP|NodePort|LoadBalancer|ExternalName|IPv[46]) )`)

// What tools print about an object, with the form in which it is taken.
var printed = []pair{
	// the lines of this tool that say the verdict
	{
		lazyregexp.New(`^(?:Impact +)?(?:MATCH|MISMATCH|WARNING|UNKNOWN|BY DESIGN): .*? ` +
			`(?:of|to|for) ([a-z0-9-]+/[a-z0-9-]+)(?: .*)?$`), "$1",
	},
	// kubectl port-forward, docker ps: web:80->8080/tcp
	{lazyregexp.New(`^([a-z0-9./-]+:\d+)->\d+(?:/[a-z]+)?$`), "$1"},
	// kubectl apply, expose, patch …: service/web created
	{
		lazyregexp.New(`^([a-z.0-9]+/[a-z0-9.-]+) (?:created|configured|unchanged|exposed|patched|edited|labeled|` +
			`annotated|replaced|scaled|restarted|condition met)$`), "$1",
	},
	// the kubelet, and the folder of a pod's logs
	{lazyregexp.New(`^([a-z0-9.-]+)_([a-z0-9-]+)\([0-9a-f-]{36}\)$`), "pod/$2/$1"},
	{lazyregexp.New(`^(?:/var/log/pods/)?([a-z0-9-]+)_([a-z0-9.-]+)_[0-9a-f-]{36}(?:/.*)?$`), "pod/$1/$2"},
	// kube-proxy's log
	{lazyregexp.New(`^.*\b(?i:service|svc)PortName="([a-z0-9-]+/[a-z0-9-]+(?::[a-z0-9-]*)?)".*$`), "$1"},
	// the column PORT(S) of kubectl get services
	{lazyregexp.New(`^(?:\d+:)?(\d+)/(?:TCP|UDP|SCTP)$`), ":$1"},
	// getent, /etc/hosts, nslookup of busybox; dig
	{lazyregexp.New(`^(?:Address(?: \d+)?: +)?[0-9a-f.:]+ +([a-z][\w-]*(?:\.[\w-]+)+\.?)$`), "$1"},
	{lazyregexp.New(`^([\w-]+(?:\.[\w-]+)+)\.?(?: +\d+)? +IN +(?:A|AAAA) +[0-9a-f.:]+$`), "$1"},
}

// unify writes the forms in which tools print an address with a port as HOST:PORT.
func (r *Reference) unify(text string) (string, error) {
	for _, alone := range []lazyregexp.Regexp{anyAddress, nodePort} {
		if m := alone().FindStringSubmatch(text); m != nil {
			return ":" + m[1], nil
		}
	}
	text = bare(text)
	for _, p := range printed {
		if p.form().MatchString(text) {
			return p.form().ReplaceAllString(text, p.meant), nil
		}
	}
	for _, whole := range []lazyregexp.Regexp{comment, namePath, resolved, listedObject} {
		if m := whole().FindStringSubmatch(text); m != nil {
			return m[1], nil
		}
	}
	if m := pastedPath().FindStringSubmatch(text); m != nil {
		return m[1], nil
	}
	for _, form := range []lazyregexp.Regexp{digPort, tcpdumpPort, nftPort, wordsPort} {
		m := form().FindStringSubmatch(text)
		if m == nil {
			continue
		}
		host, protocol, port := m[1], strings.Join(m[2:len(m)-1], ""), m[len(m)-1] // not all have a protocol
		if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
			host = "[" + host + "]"
		}
		if protocol != "" {
			port += "/" + protocol
		}
		return host + ":" + port, nil
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		if !p.IsSingleIP() {
			return "", fmt.Errorf("%q is a range of addresses: give one address of it", r.Input)
		}
		return p.Addr().String(), nil
	}
	return text, nil
}

// quotedService is how kubectl, the API server and this tool name a Service in an error: services "web" not found.
var quotedService = lazyregexp.New(`(?i)\bservices? "([^"]+)"(?:.* in (?:the )?namespace "([^"]+)")?`)

// quotedObject is the same of another kind: deployments.apps "web" not found, pod "web-0" deleted.
var quotedObject = lazyregexp.New(`\b([a-z]+)(?:\.[a-z0-9.]+)? "([a-z0-9.-]+)" (?:not found|deleted|is forbidden)`)

// resolvedName is a name with the address that it was found to have: PING web.shop (10.96.21.191), Connecting to
// web.shop (web.shop)|10.96.21.191|:80. addressList is what kubectl prints of the endpoints of one Service.
var (
	resolvedName = lazyregexp.New(`((?:[\w-]+\.)+[\w-]+(?::\d+)?)(?: \(\S+\))? ?` +
		`[(|[]((?:\d+\.){3}\d+|[0-9a-f]+:[0-9a-f:]+)(:\d+)?[)|\]](:\d+)?`)
	addressList = lazyregexp.New(`((?:\d+\.){3}\d+(?::\d+)?)(?:,(?:\d+\.){3}\d+(?::\d+)?)+`)
)

// oneOf leaves of a name with its address the one that says most, and of a list of endpoints the first: all are of the
// same Service.
func oneOf(text string) string {
	text = resolvedName().ReplaceAllStringFunc(text, func(part string) string {
		m := resolvedName().FindStringSubmatch(part)
		if leads(m[1]) {
			return m[1] + " "
		}
		if strings.Contains(m[2], ":") {
			m[2] = "[" + m[2] + "]"
		}
		return m[2] + cmp.Or(m[3], m[4]) + " "
	})
	return addressList().ReplaceAllString(text, "$1")
}

// failedLookups are the errors that name a host which was not found, beside the address of the server that was asked.
var failedLookups = []lazyregexp.Regexp{
	lazyregexp.New(`\blookup ([^\s:]+)(?: on \S+)?: `),                       // Go
	lazyregexp.New(`(?i)could not resolve host: ?'?([^\s']+)`),               // curl
	lazyregexp.New(`unable to resolve host address ['‘]([^'’]+)['’]`),        // wget
	lazyregexp.New(`bad address '([^']+)'`),                                  // busybox
	lazyregexp.New(`getaddrinfo (?:ENOTFOUND|EAI_AGAIN) (\S+)`),              // Node.js
	lazyregexp.New(`can't (?:find|resolve) '?([^\s':]+)'?`),                  // nslookup
	lazyregexp.New(`UnknownHostException: ([^\s:]+)`),                        // Java
	lazyregexp.New(`^ping: ([^\s:]+): (?:Name or service not known|Tempor)`), // ping
}

// flows are lines about a packet or a connection, which name where it comes from, or the name that was asked for, and
// where it goes: the latter is meant.
var flows = []lazyregexp.Regexp{
	lazyregexp.New(`\bIP6? \S+ > ([0-9a-fA-F.:]+)\.([a-z0-9-]+): `),              // tcpdump
	lazyregexp.New(`(?i)\b(?:dst|daddr)=([0-9a-f.:]+) .*?\b(?:dport|dpt)=(\d+)`), // conntrack, a LOG target
	lazyregexp.New(`\bdial (?:tcp|udp)[46]? \[?([0-9a-fA-F.:]+)\]?:(\d+): `),     // Go
	lazyregexp.New(`\b(?:tcp|udp)[46]? \S+->\[?([0-9a-fA-F.:]+)\]?:(\d+): `),     // Go, once it is established
	lazyregexp.New(`\bconnect to (\S+) port (\d+) from `),                        // curl
	lazyregexp.New(`\bhost=['"]?([^'",\s)]+)['"]?,? port=['"]?(\d+)`),            // Python, libpq
	lazyregexp.New(`(?:^|[\s(])[\w.-]*/(\d+\.\d+\.\d+\.\d+):(\d+)\b`),            // Java
	lazyregexp.New(`\bconnect E[A-Z]+ ([0-9a-fA-F.:]+):(\d+) - Local `),          // Node.js
	lazyregexp.New(`^(?:[A-Z][A-Z0-9-]+|tcp6?|udp6?) +\d+ +\d+ +\S+:\d+ +` + // ss, netstat
		`\[?([0-9a-fA-F.:]+?)\]?:(\d+)\b`),
}

// upstream is the server that nginx did not reach, beside its client.
var upstream = lazyregexp.New(`\bupstream: "([a-z]+://[^"]+)"`)

// portNumbers are the names that tcpdump prints for ports that Services have most.
var portNumbers = map[string]string{"domain": "53", "http": "80", "https": "443", "http-alt": "8080"}

// objectFields are how JSON, YAML, logs and labels of metrics name an object.
var objectFields = struct{ kind, namespace, name lazyregexp.Regexp }{
	kind:      lazyregexp.New(`(?i)\bkind["']?\s*[:=]\s*["']?([a-z]+)`),
	namespace: lazyregexp.New(`(?i)\b(?:namespace|ns)["']?\s*[:=]\s*["']?([a-z0-9-]+)`),
	name:      lazyregexp.New(`(?i)\b(?:name|svc|service(?:_?name)?)["']?\s*[:=]\s*["']?([a-z0-9-]+)`),
}

// label is a line that names one thing: a header of HTTP, a line of kubectl describe or of YAML.
var label = lazyregexp.New(`(?i)^(?:[-*] )?["']?(?:host(?:name)?|:?authority|name|svc|service(?:_?name)?|server|` +
	`upstream|backend|target|destination|dst|to|addr(?:ess)?|url|uri|endpoint|(?:cluster|external)?-?ip|` +
	`externalname)["']? *: *["']?([^\s"']+)["']?$`)

// namedBy returns the object that the fields of a text name, as [KIND/][NAMESPACE/]NAME; "" where they name none.
func namedBy(text string) string {
	text = strings.Trim(text, "{} ")
	if m := label().FindStringSubmatch(text); m != nil {
		return m[1]
	}
	name, namespace := objectFields.name().FindStringSubmatch(text), objectFields.namespace().FindStringSubmatch(text)
	switch kind := objectFields.kind().FindStringSubmatch(text); {
	case name == nil || namespace == nil:
		return ""
	case kind != nil:
		return strings.ToLower(kind[1]) + "/" + namespace[1] + "/" + name[1]
	}
	return namespace[1] + "/" + name[1]
}

// sentence finds the one address, URL or DNS name of a Service in a text of several words: an error message, a line of
// a log, a command, a rule.
func (r *Reference) sentence(text string) (string, error) {
	if !strings.Contains(text, " ") {
		if strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[{") {
			return cmp.Or(namedBy(strings.ReplaceAll(text, `":"`, `": "`)), text), nil
		}
		return text, nil
	}
	if m := quotedService().FindStringSubmatch(text); m != nil {
		if m[2] != "" && !strings.Contains(m[1], "/") {
			return m[2] + "/" + m[1], nil
		}
		return m[1], nil
	}
	if m := quotedObject().FindStringSubmatch(text); m != nil {
		if _, known := KindOf(m[1]); known {
			return m[1] + "/" + m[2], nil
		}
	}
	for _, form := range failedLookups {
		if m := form().FindStringSubmatch(text); m != nil {
			r.Input = Tidy(m[1])
			return r.Input, nil
		}
	}
	for _, f := range flows {
		if m := f().FindStringSubmatch(text); m != nil {
			r.Protocol = protocolIn(text)
			r.Input = m[1] + ":" + cmp.Or(portNumbers[m[2]], m[2])
			if strings.Contains(m[1], ":") {
				r.Input = "[" + m[1] + "]:" + cmp.Or(portNumbers[m[2]], m[2])
			}
			return r.Input, nil
		}
	}
	if m := upstream().FindStringSubmatch(text); m != nil {
		r.Input = withoutPassword(m[1])
		return m[1], nil
	}
	// A rule of one Service's chain leads to chains of the same Service.
	for word := range strings.FieldsSeq(text) {
		if chain := chainOf(word); chain != "" {
			return chain, nil
		}
	}
	if name := namedBy(text); name != "" {
		return name, nil
	}
	text = portOf().ReplaceAllString(oneOf(text), "$1:$2")
	found := addressesIn(text)
	switch len(found) {
	case 0:
		return text, nil
	case 1:
		if !strings.Contains(found[0], "://") {
			r.Protocol = protocolIn(text)
		}
		r.Input = withoutPassword(found[0])
		return found[0], nil
	}
	for i := range found {
		found[i] = withoutPassword(found[i])
	}
	return "", fmt.Errorf("the text names several addresses (%s): give one of them", shorten(found))
}

// addressesIn returns the words of a text that lead to a Service. An address that it has twice, as a URL and with a
// port, or with and without its port, is one.
func addressesIn(text string) (found []string) {
	var refs []Reference
words:
	for _, word := range strings.FieldsFunc(strings.ReplaceAll(text, "->", " "), separates) {
		word = resolved().ReplaceAllString(Tidy(strings.TrimSuffix(word, ":")), "$1")
		if !leads(word) {
			continue
		}
		ref, err := ParseReference(word)
		if err != nil {
			ref = Reference{Host: word} // which is nothing else than itself
		}
		for i, have := range refs {
			same := have.Address == ref.Address && have.Host == ref.Host && have.Name == ref.Name &&
				have.Namespace == ref.Namespace
			switch {
			case same && (ref.Port == have.Port || ref.Port == ""):
				continue words
			case same && have.Port == "":
				found[i], refs[i] = word, ref
				continue words
			}
		}
		found, refs = append(found, word), append(refs, ref)
	}
	return found
}

// separates tells whether a character stands between the words of a text.
func separates(c rune) bool { return strings.ContainsRune(" \"'`()<>[]{},;=“”", c) }

// protocolIn returns the one protocol that a text names as a word of its own; "" where that is none or several.
func protocolIn(text string) (found corev1.Protocol) {
	for _, word := range strings.FieldsFunc(text, separates) {
		p := corev1.Protocol(strings.ToUpper(strings.TrimRight(strings.TrimSuffix(word, ":"), "46")))
		if p != corev1.ProtocolTCP && p != corev1.ProtocolUDP && p != corev1.ProtocolSCTP {
			continue
		}
		if found != "" && found != p {
			return ""
		}
		found = p
	}
	return found
}

// leads tells whether a word of a text is an address, a URL or a name that is one of DNS for certain.
func leads(word string) bool {
	if strings.Contains(word, "://") {
		return true
	}
	word, _, _ = strings.Cut(word, "/")
	if _, err := netip.ParseAddrPort(word); err == nil {
		return true
	}
	if _, err := netip.ParseAddr(word); err == nil {
		return true
	}
	host, port, _ := strings.Cut(word, ":")
	if strings.HasSuffix(host, ".go") { // a line of a program's source, as logs name it
		return false
	}
	return strings.Contains(host+".", ".svc.") || strings.Contains(host, ".") && isPortNumber(port)
}
