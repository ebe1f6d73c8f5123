// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// Where an error names both ends of a connection, or a name and the address that it was found to have, the address that
// was connected to is meant. It was refused for its several addresses.
func TestErrorsThatNameBothEnds(t *testing.T) {
	leadsTo(t, []copied{
		{"* connect to 10.244.3.4 port 8080 from 10.244.1.16 port 51234 failed: Connection timed out", "", "shop/web"},
		{"* connect to fd00:77::12 port 30080 from fd00::1 port 51234 failed: Connection timed out", "", "shop/api"},
		{`Get "http://a:secret@web.shop/": dial tcp 10.96.21.191:80: i/o timeout`, "", "shop/web"},
		{
			`failed to call webhook: Post "http://web.shop.svc:80/validate?timeout=10s": dial tcp 10.96.21.191:80: ` +
				`connect: no route to host`, "", "shop/web",
		},
		{"read tcp 10.244.1.16:51234->10.96.21.191:80: read: connection reset by peer", "", "shop/web"},
		{"write tcp [fd00::1]:51234->[fd00:77::12]:30080: write: broken pipe", "", "shop/api"},
		{"java.net.ConnectException: Connection refused: web.shop/10.96.21.191:80", "", "shop/web"},
		{"ConnectTimeoutException: connection timed out: /10.96.21.191:80", "", "shop/web"},
		{"Connection to node -1 (web.shop/10.96.21.191:80) could not be established.", "", "shop/web"},
		{"web.shop/10.96.21.191:80", "", "shop/web"},
		{
			`"GET / HTTP/1.1" 503 UF "10.244.3.4:8080" outbound|80||web.shop.svc.cluster.local - 10.96.21.191:80 ` +
				"10.244.1.16:51234", "", "shop/web",
		},
	})
}

// What else clients, kubectl and this tool print, and was not recognized.
func TestCopiedLines(t *testing.T) {
	leadsTo(t, []copied{
		{"HTTPConnectionPool(host='web.shop', port=80): Max retries exceeded with url: /x", "", "shop/web"},
		{`connection to server at "web.shop", port 80 failed: timeout expired`, "", "shop/web"},
		{"Can't connect to MySQL server on 'web.shop' (111)", "", "shop/web"},
		{"last error: UNKNOWN: ipv4:10.96.21.191:80: Failed to connect to remote host", "", "shop/web"},
		{"outbound|80||web.shop.svc.cluster.local", "", "shop/web"},
		{"NodePort 30080", "", "shop/api"},
		{"NodePort:          http  30080/TCP", "", "shop/api"},
		{"NodePort 10.77.0.11:30080", "", "shop/api"},
		{"shop/api NodePort 127.0.0.1:30080 from node", "", "shop/api"},
		{"ClusterIP 10.96.62.156:80 from pod,node", "", "shop/api"},
		{"deployment.apps/web   3/3     3            3           3d", "shop", "shop/web"},
		{"service/web   ClusterIP   10.96.21.191   <none>   80/TCP   3d   app=web", "shop", "shop/web"},
		{"pod/web-7c9d8f6b5d-2xkqp   1/1     Running   0          3d", "shop", "shop/web"},
		{"web-7c9d8f6b5d-2xkqp   1/1   Running   0   3d   10.244.1.15   worker-1   <none>   <none>", "", "shop/web"},
		{"kubectl port-forward svc/web 8080:80 -n shop", "", "shop/web"},
		{"kubectl -n shop port-forward service/web 80", "", "shop/web"},
		{"curl -sS web.shop:80/healthz", "", "shop/web"},
		{"curl web", "shop", "shop/web"},
		{"wget -qO- web.shop", "", "shop/web"},
		{"nslookup web.shop 10.96.0.10", "", "shop/web"},
		{"dig @10.96.0.10 +short web.shop.svc.cluster.local A", "", "shop/web"},
		{"MISMATCH: 2 of 2 paths of shop/web on worker-1 are wrong", "", "shop/web"},
		{"MATCH: all 2 paths of shop/web on worker-1 are right; covers rules of worker-1", "", "shop/web"},
		{"BY DESIGN: kube-proxy has nothing to do for shop/web on worker-1, and that is right", "", "shop/web"},
		{"Impact   MISMATCH: 1 of 3 endpoints of shop/web gets no connections from pods of worker-1", "", "shop/web"},
		{"MISMATCH: 1 of 2 connections to shop/api from pods of worker-1 hangs: dropped", "", "shop/api"},
		{"shop/web:80->8080/tcp", "", "shop/web"},
		{
			`-A KUBE-SERVICES -d 10.96.21.191/32 -p tcp -m comment --comment "shop/web:http cluster IP" -m tcp --dport 80 ` +
				"-j KUBE-SVC-67NZLRHBNDSAWJRO", "", "shop/web",
		},
	})
}

// More of what tools print: a name with the address that it has, both ends of a connection, lists of endpoints, lines
// of logs; commands of kubectl with flags anywhere; marks of lists and quotations.
func TestCopiedFromTools(t *testing.T) {
	leadsTo(t, []copied{
		// a name with the address that it was found to have
		{"PING web.shop.svc.cluster.local (10.96.21.191) 56(84) bytes of data.", "", "shop/web"},
		{"PING web.shop (10.96.21.191) 56(84) bytes of data.", "", "shop/web"},
		{"traceroute to web.shop (10.96.21.191), 30 hops max, 60 byte packets", "", "shop/web"},
		{"Connecting to web.shop:80 (10.96.21.191:80)", "", "shop/web"},
		{"Connecting to web.shop (web.shop)|10.96.21.191|:80... failed: Connection timed out.", "", "shop/web"},
		{"web.shop [10.96.21.191] 80 (http) : Connection refused", "", "shop/web"},
		{"Connection to web.shop 80 port [tcp/http] succeeded!", "", "shop/web"},
		{"Connection to web.shop (10.96.21.191) 80 port [tcp/http] succeeded!", "", "shop/web"},
		{"web.shop.svc.cluster.local. 5 IN A 10.96.21.191", "", "shop/web"},
		{"Address 1: 10.96.21.191 web.shop.svc.cluster.local", "", "shop/web"},
		{"10.96.21.191      web.shop.svc.cluster.local", "", "shop/web"},
		// both ends of a connection
		{"SYN-SENT 0      1      10.244.1.16:51234   10.96.21.191:80", "", "shop/web"},
		{"tcp        0      1 10.244.1.16:51234       10.96.21.191:80         SYN_SENT", "", "shop/web"},
		{"Error: connect EHOSTUNREACH 10.96.21.191:80 - Local (10.244.1.16:41234)", "", "shop/web"},
		{`psql "host=web.shop port=80 user=me"`, "", "shop/web"},
		// lists of endpoints
		{"web          10.244.1.15:8080,10.244.2.9:8080 + 1 more...   5d", "", "shop/web"},
		{"web-wgcb6   IPv4   8080   10.244.1.15,10.244.2.9,10.244.3.4   5d", "", "shop/web"},
		{"Endpoints:                10.244.1.15:8080,10.244.2.9:8080", "", "shop/web"},
		{"web:80 (10.244.1.15:8080,10.244.2.9:8080,10.244.3.4:8080)", "", "shop/web"},
		// logs, and the folder of a pod's logs
		{
			`proxier.go:123] "Stale udp service" servicePortName="kube-system/kube-dns:dns" clusterIP="10.96.0.10"`, "",
			"kube-system/kube-dns",
		},
		{`servicePortName="shop/web:http"`, "", "shop/web"},
		{"web-7c9d8f6b5d-2xkqp_shop(6b3f5e3c-1111-2222-3333-444455556666)", "", "shop/web"},
		{"/var/log/pods/shop_web-7c9d8f6b5d-2xkqp_6b3f5e3c-1111-2222-3333-444455556666/web/0.log", "", "shop/web"},
		// kubectl
		{"k get svc web -n shop", "", "shop/web"},
		{"k -n shop get svc web", "", "shop/web"},
		{"kubectl -n shop get svc/web -o yaml", "", "shop/web"},
		{"kubectl -n shop describe svc web", "", "shop/web"},
		{"kubectl get svc -n shop web -o wide", "", "shop/web"},
		{"kubectl --context prod get endpoints web -nshop --show-labels", "", "shop/web"},
		{"kubectl logs deploy/web -c web --tail=20 --namespace=shop", "", "shop/web"},
		{"kubectl -n shop rollout restart deploy/web", "", "shop/web"},
		{"kubectl exec -n shop deploy/checkout -- curl -m 5 web.shop:80", "", "shop/web"},
		{"kubectl get svc web -n shop -o yaml | less", "", "shop/web"},
		{"service/web created", "shop", "shop/web"},
		{"deployment.apps/web configured", "shop", "shop/web"},
		{`Error from server (NotFound): deployments.apps "web" not found`, "shop", "shop/web"},
		{`pods "web-7c9d8f6b5d-2xkqp" not found`, "shop", "shop/web"},
		{"pod/web-7c9d8f6b5d-2xkqp:8080", "shop", "shop/web"},
		{"80:30080/TCP", "", "shop/api"},
		{"30080/TCP", "", "shop/api"},
		{"Service shop/web", "", "shop/web"},
		{"node worker-2:30080", "", "shop/api"},
		// clients
		{"curl --connect-timeout 5 web.shop", "", "shop/web"},
		{"curl -s -o /dev/null -m 5 web.shop:80/healthz", "", "shop/web"},
		{"traceroute -n web.shop", "", "shop/web"},
		{"tcptraceroute web.shop 80", "", "shop/web"},
		{"getent hosts web.shop", "", "shop/web"},
		// marks
		{"* shop/web", "", "shop/web"},
		{"• shop/web", "", "shop/web"},
		{"> shop/web", "", "shop/web"},
		{"#shop/web", "", "shop/web"},
		{"shop/web?", "", "shop/web"},
		{"shop/web!", "", "shop/web"},
		{"web.shop:80…", "", "shop/web"},
		{"[web](http://web.shop/)", "", "shop/web"},
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
		{"trace|shop/web|-w", "to repeat it: watch kubectl svcproxy"},
		{"trace|shop/web|--fix", "the output has the commands of the remedy"},
		{"trace|shop/web|-help", "-help is not a flag: did you mean --help?"},
		{"help|MissingEndpoint", "kubectl svcproxy explain MissingEndpoint"},
		{"trace|shop/web|--node|worker-2", `node "worker-2" is not in the snapshot: it holds worker-1` + "\n"},
		{"resolve|it hangs", "is a text in which no Service, DNS name, URL or IP address is recognized"},
		{"resolve|.", `"." names no Service: give a Service as NAME`},
		{"resolve|pod/web-7c9d8f6b5d-2xkqp:8081|-n|shop", "service shop/web has no port 8081"},
		{"resolve|10.96.21.191:80 10.96.0.10:53", "several addresses (10.96.21.191:80, 10.96.0.10:53)"},
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
	for _, args := range []string{"diff a b --no-headers", "status --no-headers"} {
		code, _, stderr := runPlugin(t, strings.Fields(args)...)
		if code != run.ExitUsage || !strings.Contains(stderr, "this command prints no table; -o name prints names alone") {
			t.Errorf("%s: got %d and %q", args, code, stderr)
		}
	}
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
