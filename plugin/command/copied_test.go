// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// Lines that other tools print, with a name or an address in them, are refused with the form that is expected.
func TestLinesAreRefused(t *testing.T) {
	const want = "is more than one name or address: give a Service as NAME, NAMESPACE/NAME"
	refused(t, []refusal{
		{"resolve|64 bytes from 10.96.21.191: icmp_seq=1 ttl=64 time=0.05 ms", want},
		{"resolve|dial tcp 10.96.21.191:80: connect: connection refused", want},
		{"resolve|nc -zv web.shop 80", want},
		{"resolve|dig +short web.shop.svc.cluster.local", want},
		{"resolve|10.96.21.191:80 10.96.0.10:53", want},
		{"resolve|it hangs", want},
		{"resolve|kubectl -n shop get svc web -o yaml", want},
	})
}

// What is proposed can be given as it is: with a namespace before the name, -n would be a second one; and what is
// nearly the "svc" of a DNS name is not part of the cluster's domain.
func TestProposalsAreTaken(t *testing.T) {
	refused(t, []refusal{
		{"resolve|sop/web", "there is one in namespace shop: give shop/web"},
		{"resolve|web.shp", "there is one in namespace shop: give shop/web"},
		{"resolve|web", "there is one in namespace shop: add -n shop"},
		{"resolve|web.shop.scv.cluster.local", "did you mean web.shop.svc.cluster.local?"},
		{"trace|shop/web|-help", "-help is not a flag: did you mean --help?"},
		{"help|MissingEndpoint", "kubectl svcproxy explain MissingEndpoint"},
		{"trace|shop/web|--node|worker-2", `node "worker-2" is not in the snapshot: it holds worker-1` + "\n"},
		{"resolve|.", `"." names no Service: give a Service as NAME`},
		{"resolve|pod/web-7c9d8f6b5d-2xkqp:8081|-n|shop", "service shop/web has no port 8081"},
	})
}

// A flag whose value was forgotten takes no other flag for it, of which the value would be one more argument.
func TestFlagsWithoutTheirValue(t *testing.T) {
	refused(t, []refusal{
		{"trace|web|-n|--node|worker-1", "-n needs a value, and --node behind it is a flag"},
		{"trace|web|-n|shop|--node", "--node needs a value, and --snapshot behind it is a flag"},
		{"trace|web|--from|-n|shop", "--from needs a value, and -n behind it is a flag"},
		{"trace|web|-n|shop|--dry-run|--node=worker-1", "--dry-run needs a value, and --node behind it is a flag"},
		{"verify|-A|-o|--no-headers", "-o needs a value, and --no-headers behind it is a flag"},
		{"verify|-n|-A", "-n needs a value, and -A behind it is a flag"},
		{"mode|-v", "-v needs a value, and --snapshot behind it is a flag"},
	})
}

// kubectl's -l selects what is listed; here it selects nodes.
func TestSelectorOfPods(t *testing.T) {
	refused(t, []refusal{
		{"trace|web|-n|shop|-l|app=web", "it holds worker-1; it is about the labels of nodes, not of Services or pods"},
		{"verify|-n|shop|--selector=app=web", "about the labels of nodes, not of Services or pods"},
	})
}

// --from is one origin: of two, the first was left out without a word. The address of a URL's brackets is one.
func TestOriginsThatAreSeveral(t *testing.T) {
	refused(t, []refusal{
		{"trace|shop/web|--from|pod|--from|node", `"pod" was given, too: run the command once for each`},
		{"verify|-A|--from|pod|--from|node", `"pod" was given, too: run the command once for each`},
		{"trace|shop/web|--from|10.244.0.0/16", "it is a range of addresses: give one address of it"},
		{"trace|shop/web|--from|0.0.0.0/0", "did you mean external?"},
		{"trace|shop/web|--from|any", "all are tried where --from is left out"},
		{"trace|shop/web|--from|[fd00::1]", "can send in IPv6 only, and service shop/web has addresses in IPv4"},
	})
}

// What prints no table takes no --no-headers: it left out headings, and neither what was read nor the verdict.
func TestNoHeadersWithoutATable(t *testing.T) {
	refused(t, []refusal{
		{"trace|shop/web|--compare|a,b|--no-headers", "this prints none: -o name prints names alone"},
	})
}

// copied is what is copied from somewhere, with the namespace of -n ("" for none) and the Service that it leads to.
type copied struct{ arg, namespace, want string }

// leadsTo checks which Service arguments lead to, in a snapshot that has all kinds of Services.
func leadsTo(t *testing.T, all []copied) {
	t.Helper()
	snapshot := kindsOfServices(t)
	for _, tt := range all {
		t.Run(tt.arg, func(t *testing.T) {
			args := []string{
				"resolve", tt.arg, "--snapshot", snapshot, "-o", "jsonpath={.service.namespace}/{.service.name}",
			}
			if tt.namespace != "" {
				args = append(args, "-n", tt.namespace)
			}
			code, stdout, stderr := runPlugin(t, args...)
			if code != run.ExitRight || strings.TrimSpace(stdout) != tt.want || strings.Contains(stdout+stderr, "secret") {
				t.Errorf("got %d, %q and %q, want %s", code, stdout, stderr, tt.want)
			}
		})
	}
}
