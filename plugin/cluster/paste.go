// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
)

// quotes are what texts are put in where people copy them from: chats, tickets, JSON, Markdown.
var quotes = [][2]string{
	{`"`, `"`}, {"'", "'"}, {"`", "`"}, {"“", "”"}, {"‘", "’"}, {"„", "“"}, {"«", "»"}, {"<", ">"}, {"(", ")"},
}

// Tidy takes off what stands around a name or an address where it is copied from: spaces, quotes, the punctuation of a
// sentence. Characters of full width and dashes of any length become those of ASCII, and invisible ones go.
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
		text = strings.TrimRight(strings.TrimSpace(text), ",;.")
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
var namespaceFlags = regexp.MustCompile(`^(?:(?:-n|--namespace)[ =]?([a-z0-9-]+) )?` +
	`(\S+(?: [^-\s]\S*)?)(?: (?:-n|--namespace)[ =]?([a-z0-9-]+))?$`)

// cutNamespace puts the namespace of such a flag before the name.
func cutNamespace(text string) string {
	m := namespaceFlags.FindStringSubmatch(text)
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
	digPort     = regexp.MustCompile(`^([0-9a-fA-F.:]+)#(\d+)(?:\(\S+\))?$`)          // 10.96.0.10#53(10.96.0.10)
	tcpdumpPort = regexp.MustCompile(`^(\d+\.\d+\.\d+\.\d+)\.(\d+)$`)                 // 10.96.0.10.53
	nftPort     = regexp.MustCompile(`^(\S+) \. (?:(tcp|udp|sctp) \. )?(\d+)$`)       // 10.96.0.10 . udp . 53
	wordsPort   = regexp.MustCompile(`^([^\s:]+|\[\S+\]) +(?:port )?(\d+)$`)          // 10.96.0.10 port 53
	namePath    = regexp.MustCompile(`^([^/\s:]+\.svc(?:\.[^/\s:]+)?)/\S*$`)          // web.shop.svc/healthz
	portOf      = regexp.MustCompile(`(\S+) port (\d+)`)                              // in a sentence
	anyAddress  = regexp.MustCompile(`^(?:\*|0\.0\.0\.0|\[::\]|::):(\d+)$`)           // 0.0.0.0:30080
	pastedPath  = regexp.MustCompile(`^([^/\s]+/[^/\s]+|[^/\s]+/[^/\s]+/[^/\s]+)/+$`) // shop/web/
)

// What else is copied with an address or a name.
var (
	kubectlLine = regexp.MustCompile(`^(?:[$#] )?(?:kubectl|oc) (?:svcproxy )?[a-z-]+ ([^-\s].*|-n .*)$`)
	// WEB_PORT=tcp://10.96.21.191:80
	variable = regexp.MustCompile(`^(?:export )?[A-Z][A-Z0-9_]*=["']?([^\s"']+)["']?$`)
	// http:/web.shop, http//web.shop, https:web.shop.svc
	brokenURL = regexp.MustCompile(`^(https?|wss?)(?:(?::/|//|:/{3,})([^/].*)|:([a-z][^/:]*\..*))$`)
)

// clients are commands that connect to a name or an address, and their port.
var clients = []*regexp.Regexp{
	regexp.MustCompile(`^(?:[$#] )?(?:nc|ncat|netcat|telnet|ping6?)(?: -\S+(?: \d+)?)* ([^-\s:][^\s:]*)(?: (\d+))?$`),
	regexp.MustCompile(`^(?:[$#] )?(?:mysql|mariadb|psql|pg_isready|redis-cli)\b.* -h ?([^\s:]+)(?:.* -[pP] ?(\d+))?`),
}

// bare takes off what is copied with an address or a name: a command before it, the name of a variable.
func bare(text string) string {
	if m := kubectlLine.FindStringSubmatch(text); m != nil {
		text = m[1]
	}
	text = cutNamespace(text)
	for _, c := range clients {
		if m := c.FindStringSubmatch(text); m != nil {
			return strings.TrimSuffix(m[1]+":"+m[2], ":")
		}
	}
	if m := variable.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	if m := brokenURL.FindStringSubmatch(text); m != nil {
		return m[1] + "://" + m[2] + m[3]
	}
	kind, name, two := strings.Cut(text, " ")
	if _, known := KindOf(kind); two && known && isLabel(name) {
		return kind + "/" + name
	}
	return text
}

// comment is that of a rule of kube-proxy's in iptables mode: shop/web:http cluster IP.
var comment = regexp.MustCompile(`^([a-z0-9-]+/[a-z0-9-]+(?::[a-z0-9-]+)?) ` +
	`(?:(?:cluster|external|loadbalancer) IP|has no |-> )`)

// unify writes the forms in which tools print an address with a port as HOST:PORT.
func (r *Reference) unify(text string) (string, error) {
	if m := anyAddress.FindStringSubmatch(text); m != nil {
		return ":" + m[1], nil
	}
	text = bare(text)
	for _, whole := range []*regexp.Regexp{comment, namePath} {
		if m := whole.FindStringSubmatch(text); m != nil {
			return m[1], nil
		}
	}
	if m := pastedPath.FindStringSubmatch(text); m != nil {
		parts := strings.Split(m[1], "/")
		if _, kind := KindOf(parts[0]); !kind || len(parts) == 3 {
			return m[1], nil
		}
	}
	for _, form := range []*regexp.Regexp{digPort, tcpdumpPort, nftPort, wordsPort} {
		m := form.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		host := m[1]
		if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
			host = "[" + host + "]"
		}
		out := host + ":" + m[len(m)-1]
		if form == nftPort && m[2] != "" {
			out += "/" + m[2]
		}
		return out, nil
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
var quotedService = regexp.MustCompile(`(?i)\bservices? "([^"]+)"(?:.* in (?:the )?namespace "([^"]+)")?`)

// failedLookups are the errors that name a host which was not found, beside the address of the server that was asked.
var failedLookups = []*regexp.Regexp{
	regexp.MustCompile(`\blookup ([^\s:]+)(?: on \S+)?: `),                       // Go
	regexp.MustCompile(`(?i)could not resolve host: ?'?([^\s']+)`),               // curl
	regexp.MustCompile(`unable to resolve host address ['‘]([^'’]+)['’]`),        // wget
	regexp.MustCompile(`bad address '([^']+)'`),                                  // busybox
	regexp.MustCompile(`getaddrinfo (?:ENOTFOUND|EAI_AGAIN) (\S+)`),              // Node.js
	regexp.MustCompile(`can't (?:find|resolve) '?([^\s':]+)'?`),                  // nslookup
	regexp.MustCompile(`UnknownHostException: ([^\s:]+)`),                        // Java
	regexp.MustCompile(`^ping: ([^\s:]+): (?:Name or service not known|Tempor)`), // ping
}

// sentence finds the one address, URL or DNS name of a Service in a text of several words: an error message, a line of
// a log, a command, a rule.
func (r *Reference) sentence(text string) (string, error) {
	if !strings.Contains(text, " ") {
		return text, nil
	}
	if m := quotedService.FindStringSubmatch(text); m != nil {
		if m[2] != "" && !strings.Contains(m[1], "/") {
			return m[2] + "/" + m[1], nil
		}
		return m[1], nil
	}
	for _, form := range failedLookups {
		if m := form.FindStringSubmatch(text); m != nil {
			r.Input = Tidy(m[1])
			return r.Input, nil
		}
	}
	// A rule of one Service's chain leads to chains of the same Service.
	for word := range strings.FieldsSeq(text) {
		if word = strings.TrimSuffix(word, ":"); isServiceChain(word) {
			return word, nil
		}
	}
	text = portOf.ReplaceAllString(text, "$1:$2")
	var found []string
	for _, word := range strings.FieldsFunc(strings.ReplaceAll(text, "->", " "), func(c rune) bool {
		return strings.ContainsRune(" \"'`()<>,;=“”", c)
	}) {
		word = Tidy(strings.TrimSuffix(word, ":"))
		if leads(word) && !slices.Contains(found, word) {
			found = append(found, word)
		}
	}
	switch len(found) {
	case 0:
		return text, nil
	case 1:
		r.Input = withoutPassword(found[0])
		return found[0], nil
	}
	for i := range found {
		found[i] = withoutPassword(found[i])
	}
	return "", fmt.Errorf("the text names several addresses (%s): give one of them", shorten(found))
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
	return strings.Contains(host+".", ".svc.") || strings.Contains(host, ".") && isPortNumber(port)
}

// withoutPassword hides the password of a URL.
func withoutPassword(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}
	if u, err := url.Parse(text); err == nil {
		return u.Redacted()
	}
	scheme, _, _ := strings.Cut(text, "://")
	return scheme + "://…"
}

// meant says what an argument that is not a reference may have meant, as an error of its own; the error that there is,
// where it cannot be said.
func (r *Reference) meant(text string, err error) error {
	if lower := strings.ToLower(text); lower != text && !strings.HasPrefix(text, "KUBE-") {
		if _, wrong := ParseReference(lower); wrong == nil {
			return fmt.Errorf("%q is not a Service: names are written in lower case, %s", r.Input, lower)
		}
	}
	host, port := cutLast(text, ":")
	a, notAddress := netip.ParseAddr(host)
	number, notNumber := strconv.Atoi(port)
	parts, fields := strings.Split(text, "/"), strings.Fields(text)
	_, isKind := KindOf(parts[0])
	switch {
	case text == "":
		return fmt.Errorf("%q is empty, so that it names no Service: %s", r.Input, forms)
	case notAddress == nil && a.Is6() && notNumber == nil:
		return fmt.Errorf("%q has an IPv6 address with a port, which is written [%s]:%d", r.Input, a, number)
	case strings.HasSuffix(text, ":"):
		return fmt.Errorf("%q ends in a colon: a port is a number from 1 to 65535, or a name", r.Input)
	case strings.Contains(text, "*"):
		return fmt.Errorf("%q is not a Service, and names have no wildcards: verify -n NAMESPACE verifies all Services of a "+
			"namespace, verify -A all of the cluster", r.Input)
	case strings.Contains(port, ","):
		return fmt.Errorf("%q has several ports: give one, or none for all", r.Input)
	case addressAndPort(text) != "":
		return fmt.Errorf("%q is not an address with a port: did you mean %s?", r.Input, addressAndPort(text))
	case strings.Contains(text, `\`):
		return fmt.Errorf("%q is not a Service: did you mean %s?", r.Input, strings.ReplaceAll(text, `\`, "/"))
	case strings.Contains(text, ","):
		return fmt.Errorf("%q is not one Service: verify takes several, as words of their own", r.Input)
	case len(fields) == 2 && isLabel(fields[0]) && isLabel(fields[1]):
		return fmt.Errorf("%q is not one name: did you mean %s/%s?", r.Input, fields[0], fields[1])
	case strings.Contains(text, "=") && !strings.Contains(text, "/"):
		return fmt.Errorf("%q is not a Service: it is given by its name, not by labels", r.Input)
	case len(parts) == 2 && parts[1] == "" && !isKind && isLabel(parts[0]):
		return fmt.Errorf("%q has no name of a Service: verify -n %s verifies all of a namespace", r.Input, parts[0])
	case len(parts) == 3 && isPortNumber(parts[2]):
		return fmt.Errorf("%q is not a Service: did you mean %s/%s:%s?", r.Input, parts[0], parts[1], parts[2])
	}
	return err
}

// addressAndPort is ADDRESS:PORT of a text with a comma between the two; "" where it is something else.
func addressAndPort(text string) string {
	host, port, _ := strings.Cut(text, ",")
	if a, err := netip.ParseAddr(host); err != nil || a.Is6() || !isPortNumber(port) {
		return ""
	}
	return host + ":" + port
}

func isPortNumber(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n > 0 && n <= 65535
}

// cutLast cuts a text at the last separator.
func cutLast(text, separator string) (before, after string) {
	if i := strings.LastIndex(text, separator); i >= 0 {
		return text[:i], text[i+len(separator):]
	}
	return text, ""
}

func isLabel(text string) bool { return len(validation.IsDNS1123Label(text)) == 0 }
