// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
)

// scheme is what the scheme of a URL says of the connection.
type scheme struct {
	protocol corev1.Protocol
	port     string // that clients take for URLs without one; "": they take that of the program, or none
}

// schemes are those that say which protocol is spoken. Of others nothing is known, and every protocol is meant.
var schemes = func() map[string]scheme {
	out := map[string]scheme{
		"http": {corev1.ProtocolTCP, "80"}, "https": {corev1.ProtocolTCP, "443"},
		"ws": {corev1.ProtocolTCP, "80"}, "wss": {corev1.ProtocolTCP, "443"},
	}
	for protocol, names := range map[corev1.Protocol]string{
		corev1.ProtocolTCP: "tcp tcp4 tcp6 tls ssl grpc grpcs h2c http2 redis rediss postgres postgresql mysql mariadb " +
			"mongodb sqlserver oracle cassandra clickhouse neo4j bolt memcached amqp amqps kafka nats pulsar mqtt mqtts " +
			"ldap ldaps ftp ftps sftp ssh git telnet smtp smtps imap imaps pop3 pop3s rtmp rtsp vnc rdp etcd zookeeper",
		corev1.ProtocolUDP:  "udp udp4 udp6 quic h3 http3 dtls coap ntp tftp snmp rtp radius statsd",
		corev1.ProtocolSCTP: "sctp sctp4 sctp6",
	} {
		for name := range strings.FieldsSeq(names) {
			out[name] = scheme{protocol: protocol}
		}
	}
	return out
}()

var (
	// nestedScheme is what stands before the URL itself, as in jdbc:postgresql://db.shop:5432/db.
	nestedScheme = lazyregexp.New(`^(?:[a-z][a-z0-9+.-]*:)+([a-z][a-z0-9+.-]*://)`)
	// severalHosts is a URL of a cluster of servers: mongodb://a:27017,b:27017/db.
	severalHosts = lazyregexp.New(`^([A-Za-z][A-Za-z0-9+.-]*)://(?:[^/?#]*@)?([^/?#@]*,[^/?#@]*)`)
)

// cutURL returns host:port of a URL; what is none is returned as it is.
func (r *Reference) cutURL(text string) (string, error) {
	if !strings.Contains(text, "://") {
		return text, nil
	}
	text = nestedScheme().ReplaceAllString(text, "$1")
	if m := severalHosts().FindStringSubmatch(text); m != nil {
		r.Input = m[1] + "://" + m[2]
		return "", fmt.Errorf("%q has several hosts: give one of them (%s)", r.Input,
			strings.ReplaceAll(m[2], ",", ", "))
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		// The error of url.Parse holds the whole text, passwords included.
		r.Input, _, _ = strings.Cut(text, "://")
		return "", errors.New("a URL was given that cannot be parsed: give the Service or the address in it")
	}
	r.Input = u.Redacted()
	host := u.Hostname()
	if strings.Contains(host, ":") {
		if a, err := netip.ParseAddr(host); err != nil || !a.Is6() {
			return "", fmt.Errorf("%q has a host that is neither a name nor an IP address: give the Service in it", r.Input)
		}
		host = "[" + host + "]"
	}
	name, _, _ := strings.Cut(u.Scheme, "+") // mongodb+srv
	known := schemes[name]
	r.Protocol = known.protocol
	if port := u.Port(); port != "" {
		return host + ":" + port, nil
	}
	if known.port != "" {
		r.Scheme = u.Scheme
		return host + ":" + known.port, nil
	}
	return host, nil
}
