// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
)

// meant says what an argument that is not a reference may have meant, as an error of its own; the error that there is,
// where it cannot be said.
func (r *Reference) meant(text string, err error) error {
	if lower := strings.ToLower(text); lower != text && !strings.HasPrefix(text, "KUBE-") {
		if _, wrong := ParseReference(lower); wrong == nil {
			return fmt.Errorf("%q is not a Service: names are written in lower case, %s", r.Input, lower)
		}
	}
	host, port := cutLast(text, ":")
	if meant := otherForm(text); meant != "" {
		return fmt.Errorf("%q is not a Service: did you mean %s?", r.Input, meant)
	}
	a, notAddress := netip.ParseAddr(host)
	number, notNumber := strconv.Atoi(port)
	parts, fields := strings.Split(text, "/"), strings.Fields(text)
	words := strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' })
	_, isKind := KindOf(parts[0])
	switch {
	case text == "" && r.Input != strings.TrimSpace(r.Input) || r.Input == "":
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
	case strings.Contains(text, ",") && areServices(words):
		return fmt.Errorf("%q has several names: give one; the command verify takes several, separated by spaces: %s",
			r.Input, strings.Join(words, " "))
	case len(fields) == 2 && isLabel(fields[0]) && isLabel(fields[1]) && !describes(fields):
		return fmt.Errorf("%q is not one name: did you mean %s/%s?", r.Input, fields[0], fields[1])
	case strings.Contains(text, "=") && !strings.Contains(text, "/") && len(fields) == 1:
		return fmt.Errorf("%q is not a Service: it is given by its name, not by labels", r.Input)
	case len(parts) == 2 && parts[1] == "" && !isKind && isLabel(parts[0]):
		return fmt.Errorf("%q has no name of a Service: verify -n %s verifies all of a namespace", r.Input, parts[0])
	case len(parts) == 3 && !isKind && (isPortNumber(parts[2]) || slices.Contains(portWords, parts[2])):
		return fmt.Errorf("%q is not a Service: did you mean %s/%s:%s?", r.Input, parts[0], parts[1], parts[2])
	}
	return err
}

// describes tells whether words are about what a person sees ("it hangs"), and not names.
func describes(words []string) bool {
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.Contains([]string{
			"it", "is", "not", "no", "a", "the", "my", "all", "connection", "connections", "request", "requests", "timed",
			"timeout", "timeouts", "hang", "hangs", "fail", "fails", "failed", "refused", "reset", "slow", "down", "broken",
		}, word)
	})
}

// areServices tells whether each of several words may be a Service.
func areServices(words []string) bool {
	return len(words) > 1 && !slices.ContainsFunc(words, func(word string) bool {
		_, err := ParseReference(word)
		return err != nil
	})
}

// pairs are ways in which people write a Service and its namespace, with the form that is taken. A port may follow the
// Service's name, and a kind stand before it.
var pairs = func() []pair {
	const (
		service   = `(?:(?:service|svc)[/ ])?([a-z0-9-]+(?::[a-z0-9-]+)?)`
		namespace = `(?:the )?(?:(?:namespace|ns)[ /=:]? ?)?([a-z0-9-]+)(?: namespace| ns)?`
	)
	return []pair{
		{lazyregexp.New(`^` + service + `,? (?:in|of|from|at|within|@) ` + namespace + `$`), "$2/$1"},
		{lazyregexp.New(`^` + service + ` ?@ ?` + namespace + `$`), "$2/$1"},
		{lazyregexp.New(`^` + service + ` ?[(\[{<] ?(?:in )?` + namespace + ` ?[)\]}>]$`), "$2/$1"},
		{lazyregexp.New(`^` + service + `,? (?:namespace|ns)[ /=:] ?([a-z0-9-]+)$`), "$2/$1"},
		{lazyregexp.New(`^(?:namespace|ns)[ /=:] ?([a-z0-9-]+),? ` + service + `$`), "$1/$2"},
		{lazyregexp.New(`^` + namespace + ` ?(?:\||->|=>|→|>|::|;|#|\+|!|~) ?` + service + `$`), "$1/$2"},
	}
}()

type pair struct {
	form  lazyregexp.Regexp
	meant string
}

// besides are spaces where none belong.
var besides = lazyregexp.New(` *([/:]) *`)

// slashes are more of them than belong between two names.
var slashes = lazyregexp.New(`/{2,}`)

// otherForm returns the form in which an argument would be taken that is written in another one; "" where that is not
// known.
func otherForm(text string) string {
	if strings.Contains(text, "%") {
		if plain, err := url.PathUnescape(text); err == nil && plain != text {
			return taken(plain)
		}
	}
	for _, p := range pairs {
		if p.form().MatchString(text) {
			return taken(p.form().ReplaceAllString(text, p.meant))
		}
	}
	if meant := besides().ReplaceAllString(text, "$1"); meant != text {
		return taken(meant)
	}
	if meant := slashes().ReplaceAllString(strings.TrimLeft(text, "/"), "/"); meant != text {
		return taken(meant)
	}
	host, port, one := strings.Cut(text, "/")
	if one && strings.Contains(host, ".") && (isPortNumber(port) || slices.Contains(portWords, port)) {
		return taken(host + ":" + port)
	}
	return ""
}

// portWords are names that ports have most.
var portWords = []string{"http", "https", "grpc", "metrics", "dns", "tcp"}

// taken returns a text if it is a reference, else "".
func taken(text string) string {
	if _, err := ParseReference(text); err != nil {
		return ""
	}
	return text
}

// addressAndPort is ADDRESS:PORT of a text with a comma between the two; "" where it is something else.
func addressAndPort(text string) string {
	host, port, _ := strings.Cut(text, ",")
	if a, err := netip.ParseAddr(host); err != nil || a.Is6() || !isPortNumber(port) {
		return ""
	}
	return host + ":" + port
}

// isNumber tells whether a text is a number, of any size.
func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

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
