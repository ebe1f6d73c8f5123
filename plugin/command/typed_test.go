// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// moreServices are kinds of Services that the snapshot of owned is without.
const (
	moreServices = `- apiVersion: v1
  kind: Service
  metadata: {name: db, namespace: shop}
  spec: {type: ExternalName, externalName: db.example.com}
- apiVersion: v1
  kind: Service
  metadata: {name: redis, namespace: shop}
  spec:
    clusterIP: None
    clusterIPs: [None]
    ports:
    - {name: redis, port: 6379, protocol: TCP, targetPort: 6379}
- apiVersion: v1
  kind: Service
  metadata: {name: lb, namespace: shop}
  spec:
    type: LoadBalancer
    clusterIP: 10.96.50.50
    clusterIPs: [10.96.50.50]
    ports:
    - {name: https, port: 443, protocol: TCP, targetPort: 8443, nodePort: 31443}
  status:
    loadBalancer:
      ingress:
      - {hostname: lb.eu.example.com}
      - {ip: 203.0.113.9}
`
	moreSlices = `- addressType: IPv4
  apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  endpoints:
  - addresses: [10.244.2.77]
    conditions: {ready: true}
    hostname: redis-0
    nodeName: worker-2
  metadata:
    labels: {kubernetes.io/service-name: redis}
    name: redis-abcde
    namespace: shop
  ports:
  - {name: redis, port: 6379, protocol: TCP}
`
)

// kindsOfServices is the snapshot with a headless Service, one with a load balancer, and one that stands for a host.
func kindsOfServices(t *testing.T) string {
	t.Helper()
	dir := owned(t)
	for file, more := range map[string]string{"services.yaml": moreServices, "endpointslices.yaml": moreSlices} {
		path := filepath.Join(dir, "cluster", file)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(data), "items:\n", "items:\n"+more, 1)
		if text == string(data) {
			t.Fatal("no items in", path)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// What is copied from chats, tickets, rules and error messages leads to the Service that it names. An argument may have
// spaces; namespace is that of -n.
func TestCopiedArguments(t *testing.T) {
	leadsTo(t, []copied{
		// with what stands around it
		{" web", "shop", "shop/web"},
		{"web ", "shop", "shop/web"},
		{"web,", "shop", "shop/web"},
		{"'web'", "shop", "shop/web"},
		{`"shop/web"`, "", "shop/web"},
		{"`shop/web`", "", "shop/web"},
		{"“shop/web”", "", "shop/web"},
		{"(shop/web)", "", "shop/web"},
		{"shop/web;", "", "shop/web"},
		// with a flag of kubectl, and the dashes that editors make of "-"
		{"svc/web -n shop", "", "shop/web"},
		{"web -n shop", "", "shop/web"},
		{"web:http --namespace=shop", "", "shop/web"},
		{"kubectl get -n shop svc web", "", "shop/web"},
		{"kubectl get svc web -n shop", "", "shop/web"},
		{"kubectl describe -n shop service/web", "", "shop/web"},
		{"svc/web –n shop", "", "shop/web"},
		{"kube–dns -n kube‑system", "", "kube-system/kube-dns"},
		{"pod/web−7c9d8f6b5d−2xkqp -n shop", "", "shop/web"},
		{"shop/web.", "", "shop/web"},
		{"shop/web/", "", "shop/web"},
		{"service/shop/web/", "", "shop/web"},
		{"\u200bshop/\u200bweb", "", "shop/web"},
		{"\u00a0shop/web\n", "", "shop/web"},
		{"ｓｈｏｐ／ｗｅｂ：８０", "", "shop/web"},
		{"１０.９６.２１.１９１", "", "shop/web"},
		// errors, and lines of this tool and of kubectl
		{`Error from server (NotFound): services "web" not found`, "shop", "shop/web"},
		{`error: service "web" not found in namespace "shop"; did you mean shop/web?`, "", "shop/web"},
		{`service "shop/web"`, "", "shop/web"},
		{`endpoints for service "web" in the namespace "shop"`, "", "shop/web"},
		{"dial tcp: lookup web.shop on 10.96.0.10:53: no such host", "", "shop/web"},
		{"lookup web.shop.svc.cluster.local: i/o timeout", "", "shop/web"},
		{"curl: (6) Could not resolve host: web.shop", "", "shop/web"},
		{"curl: (28) Failed to connect to web.shop port 80 after 130000 ms: Connection timed out", "", "shop/web"},
		{"wget: unable to resolve host address ‘web.shop’", "", "shop/web"},
		{"wget: bad address 'web.shop:80'", "", "shop/web"},
		{"Error: getaddrinfo ENOTFOUND web.shop", "", "shop/web"},
		{"Error: connect ECONNREFUSED 10.96.21.191:80", "", "shop/web"},
		{"** server can't find web.shop.svc.cluster.local: NXDOMAIN", "", "shop/web"},
		{"java.net.UnknownHostException: web.shop: Name or service not known", "", "shop/web"},
		{"ping: web.shop: Name or service not known", "", "shop/web"},
		{"nc: connect to 10.96.21.191 port 80 (tcp) failed: Connection refused", "", "shop/web"},
		{"nat KUBE-SVC-67NZLRHBNDSAWJRO rule 2", "", "shop/web"},
		{"-A -t 10.96.21.191:80 -s rr -p 10800", "", "shop/web"},
		{"-a -t 10.96.21.191:80 -r 10.244.1.4:8080 -m -w 1", "", "shop/web"},
		{"-t 10.96.21.191:80 rr", "", "shop/web"},
		{"-t nat -A KUBE-SERVICES -d 10.96.21.191/32 -p tcp -j KUBE-SVC-67NZLRHBNDSAWJRO", "", "shop/web"},
		{"nat KUBE-SVC-67NZLRHBNDSAWJRO leads to 2 other endpoints only", "", "shop/web"},
		{"KUBE-SVC-67NZLRHBNDSAWJRO:", "", "shop/web"},
		{"[0:0] -A KUBE-SERVICES -d 10.96.21.191/32 -p tcp -j KUBE-SVC-67NZLRHBNDSAWJRO", "", "shop/web"},
		{"shop   web   ClusterIP   10.96.21.191   <none>   80/TCP   3d", "", "shop/web"},
		// URLs and names
		{"jdbc:postgresql://web.shop:80/db", "", "shop/web"},
		{"postgres://me:secret@web.shop/db", "", "shop/web"},
		{"grpc://web.shop:80", "", "shop/web"},
		{"redis://:secret@web.shop:80/0", "", "shop/web"},
		{"services.v1./web", "shop", "shop/web"},
		{"http://me:secret@web.shop:80/a/b?x=1#f", "", "shop/web"},
		{"<http://web.shop/>", "", "shop/web"},
		{"http://web.shop/,", "", "shop/web"},
		{"http://web.shop:80.", "", "shop/web"},
		{"postgres://u:secret@web.shop:80/db?sslmode=disable", "", "shop/web"},
		{"web.shop.svc:http", "", "shop/web"},
		{"svc/web.shop", "", "shop/web"},
		{"svc/web.shop:80", "", "shop/web"},
		{"Web.Shop", "", "shop/web"},
		{"web.shop.svc.cluster.local/", "", "shop/web"},
		{"web.shop.svc.cluster.local/healthz", "", "shop/web"},
		{"web.shop.svc.other.domain", "", "shop/web"},
		{"worker-2.:30080", "", "shop/api"},
		{"db.example.com", "", "shop/db"},
		{"db.example.com:5432", "", "shop/db"},
		{"db", "shop", "shop/db"},
		{"redis", "shop", "shop/redis"},
		{"redis-0.redis.shop", "", "shop/redis"},
		{"redis-0.redis.shop.svc.cluster.local:6379", "", "shop/redis"},
		{"10.244.2.77:6379", "", "shop/redis"},
		{"lb.eu.example.com", "", "shop/lb"},
		{"https://LB.eu.example.com/", "", "shop/lb"},
		{"203.0.113.9", "", "shop/lb"},
		// as tools print addresses
		{"10.96.21.191/32", "", "shop/web"},
		{"10.96.21.191.", "", "shop/web"},
		{"10.96.21.191.80", "", "shop/web"},
		{"10.96.21.191 80", "", "shop/web"},
		{"10.96.21.191 port 80", "", "shop/web"},
		{"10.96.21.191 . tcp . 80", "", "shop/web"},
		{"10.96.0.10#53", "", "kube-system/kube-dns"},
		{"10.96.0.10#53(10.96.0.10)", "", "kube-system/kube-dns"},
		{"[::1]:30080", "", "shop/api"},
		{"http://[fd00:77::12]:30080/x", "", "shop/api"},
		{"0.0.0.0:30080", "", "shop/api"},
		{"[::]:30080", "", "shop/api"},
		{"*:30080", "", "shop/api"},
		{"shop/web\t80", "", "shop/web"},
		// in lines of logs and of listings
		{"dial tcp 10.96.21.191:80: i/o timeout", "", "shop/web"},
		{`Get "http://web.shop.svc:80/": context deadline exceeded`, "", "shop/web"},
		{"curl: (7) Failed to connect to 10.96.21.191 port 80 after 1 ms: Connection refused", "", "shop/web"},
		{"nc: connect to web.shop port 80 (tcp) failed", "", "shop/web"},
		{"curl -v http://me:secret@web.shop/x", "", "shop/web"},
		{"shop   web   ClusterIP   10.96.21.191   <none>   80/TCP   3d", "", "shop/web"},
		{"TCP  10.96.21.191:80 rr", "", "shop/web"},
		{"ip daddr 10.96.21.191 tcp dport 80", "", "shop/web"},
		{"shop/web:http cluster IP", "", "shop/web"},
		{"shop/web:http -> 10.244.1.15:8080", "", "shop/web"},
		{"shop/web:http has no endpoints", "", "shop/web"},
		{"KUBE-SVC-67NZLRHBNDSAWJRO,", "", "shop/web"},
		// commands, variables and URLs that are broken
		{"kubectl get svc web", "shop", "shop/web"},
		{"$ kubectl describe service web", "shop", "shop/web"},
		{"kubectl svcproxy trace shop/web", "", "shop/web"},
		{"kubectl svcproxy trace web -n shop", "", "shop/web"},
		{"oc get svc web -n shop", "", "shop/web"},
		{"nc -zv web 80", "shop", "shop/web"},
		{"nc -zv -w 3 web.shop 80", "", "shop/web"},
		{"telnet web.shop 80", "", "shop/web"},
		{"telnet 10.96.21.191 80", "", "shop/web"},
		{"ping -c 3 web.shop", "", "shop/web"},
		{"psql -h web.shop -p 80 -U me", "", "shop/web"},
		{"mysql -u me -h web.shop -P 80", "", "shop/web"},
		{"redis-cli -h redis.shop -p 6379", "", "shop/redis"},
		{"WEB_SERVICE_HOST=10.96.21.191", "", "shop/web"},
		{"WEB_PORT=tcp://10.96.21.191:80", "", "shop/web"},
		{`export DB_URL="postgres://u:secret@web.shop:80/db"`, "", "shop/web"},
		{"http:/web.shop/", "", "shop/web"},
		{"http//web.shop", "", "shop/web"},
		{"http:///web.shop:80", "", "shop/web"},
		{"http:web.shop.svc", "", "shop/web"},
		// lines about packets, headers and fields
		{"IP 10.244.1.16.51234 > 10.96.21.191.80: Flags [S]", "", "shop/web"},
		{"12:00:01.1 eth0 In IP 10.244.1.16.51234 > 10.96.21.191.http: Flags [S], seq 1", "", "shop/web"},
		{"tcp 6 117 SYN_SENT src=10.244.1.16 dst=10.96.21.191 sport=5123 dport=80 [UNREPLIED]", "", "shop/web"},
		{"SRC=10.244.1.16 DST=10.96.21.191 LEN=60 PROTO=TCP SPT=51234 DPT=80", "", "shop/web"},
		{
			`Readiness probe failed: Get "http://10.244.1.15:8080/": dial tcp 10.244.1.15:8080: connect: connection refused`, "",
			"shop/web",
		},
		{
			`connect() failed (111) while connecting to upstream, client: 10.0.0.1, upstream: "http://10.96.21.191:80/"`, "",
			"shop/web",
		},
		{"Host: web.shop", "", "shop/web"},
		{"Name:              web", "shop", "shop/web"},
		{"IP:                10.96.21.191", "", "shop/web"},
		{`{"namespace":"shop","name":"web"}`, "", "shop/web"},
		{`{"kind":"Pod","namespace":"shop","name":"web-7c9d8f6b5d-2xkqp"}`, "", "shop/web"},
		{"svc: web, ns: shop", "", "shop/web"},
		{`{namespace="shop", service="web"}`, "", "shop/web"},
		{"kube-svc-67nzlrhbndsawjro", "", "shop/web"},
		{"svc/web/", "shop", "shop/web"},
		{"redis-0.redis", "shop", "shop/redis"},
		{"udp://10.96.0.10:53", "", "kube-system/kube-dns"},
	})
}

// What cannot be meant is refused with exit code 2, in one line that names it and what would be accepted. "|" separates
// arguments that have spaces.
func TestRefusedArguments(t *testing.T) {
	refused(t, []refusal{
		// Services
		{"resolve|", "is empty, so that it names no Service"},
		{"resolve|shop:web", "did you mean shop/web?"},
		{"resolve|svc/web -n nope", `service "web" not found in namespace "nope"`},
		{"resolve|svc/web -n shop|-n|default", "names namespace shop, and -n namespace default: give one of them"},
		{"resolve|pod/web-7c9d8f6b5d-2xkqp", "but one in namespace shop: add -n shop"},
		{"trace|shop/web|—node|worker-1", `"—node" begins with a dash that is not "-": did you mean --node?`},
		{"trace|shop/web|–-all-nodes", "did you mean --all-nodes?"},
		{"trace|web|–n|shop", "did you mean -n?"},
		{"verify|—all-namespaces", "did you mean --all-namespaces?"},
		{"mode|−−all-nodes", "did you mean --all-nodes?"},
		{"resolve|shop.web", "did you mean shop/web?"},
		{"resolve|web/shop", "did you mean shop/web?"},
		{"resolve|shop web", "did you mean shop/web?"},
		{"resolve|shop/web/80", "did you mean shop/web:80?"},
		{"resolve|shop/web|80", "port 80 of it is shop/web:80"},
		{"resolve|shop|web", "Service web in namespace shop is shop/web"},
		{"trace|web|help", "for help give kubectl svcproxy trace --help"},
		{"resolve|Shop/Web", "names are written in lower case, shop/web"},
		{"resolve|WORKER-2:30080", "names are written in lower case, worker-2:30080"},
		{"resolve|shop/web:80,443", "has several ports"},
		{"verify|web,api|-n|shop", "the command verify takes several, separated by spaces: web api"},
		{"verify|shop", "shop is a namespace: verify -n shop"},
		{"verify|shop/", "verify -n shop verifies all"},
		{"verify|shop/*", "names have no wildcards"},
		{"verify|*", "verify -A all of the cluster"},
		{"verify|all", "verify -A verifies all Services"},
		{"verify|services", "verify -A verifies all Services"},
		{"resolve|app=web", "by its name, not by labels"},
		{"resolve|svc/", `"svc/" names no Service`},
		{"resolve|web-7c9d8f6b5d-2xkqp", "give pod/shop/web-7c9d8f6b5d-2xkqp"},
		{"resolve|web.shop.cluster.local", "did you mean web.shop.svc.cluster.local?"},
		{"resolve|google.com", `service "google" not found in namespace "com"`},
		{"resolve|web..shop", "nor a DNS name of one"},
		{"resolve|web_1", "is not a Service name"},
		{"resolve|svc:web|-n|shop", "did you mean svc/web?"},
		{`resolve|shop\web`, "did you mean shop/web?"},
		{"resolve|ingress/web|-n|shop", "a reference of the kind ingress is not accepted: name the Service itself"},
		{"resolve|configmap/web", "a reference of the kind configmap is not accepted: name the Service itself"},
		{"resolve|web|-n|ns/shop", "there is one in namespace shop: add -n shop"},
		{"resolve|web|-n|SHOP", "there is one in namespace shop: add -n shop"},
		{"resolve|$SERVICE", `"$SERVICE" is not a Service name`},
		{"resolve|<service>", "verify -A verifies all Services"},
		{
			"resolve|https://web.shop.svc/",
			"shop/web has no port 443/TCP, the port of https:// without a port: it has http 80/TCP",
		},
		{"resolve|https://10.96.21.191", "no port 443/TCP, the port of https:// without a port: it has http 80/TCP"},
		{"resolve|wss://web.shop", "no port 443/TCP, the port of wss:// without a port: it has http 80/TCP"},
		{"resolve|https://web.shop:443", "service shop/web has no port 443/TCP: it has http 80/TCP"},
		// addresses and ports
		{"resolve|10.96.21.191,80", "did you mean 10.96.21.191:80?"},
		{"resolve|10.96.21.191|80", "port 80 of it is 10.96.21.191:80"},
		{"resolve|10.96.21.191:65536", "a port is a number from 1 to 65535"},
		{"resolve|10.96.21.1911", `"10.96.21.1911" is not a Service name, nor a DNS name of one`},
		{"resolve|8.8.8.8:53", "no Service has the address 8.8.8.8"},
		{"resolve|10.96.21.250", "it may be the address of a deleted Service, whose rules verify -A finds"},
		{"resolve|worker-1", "give it with a NodePort, as worker-1:30080"},
		{"resolve|fd00:77::12:30080", "which is written [fd00:77::12]:30080"},
		{"resolve|fd00:77::12:3080", "an IPv6 address with a port is written [fd00:77::12]:3080"},
		{"resolve|[fd00:77::12]:", "ends in a colon"},
		{"resolve|shop/web:", "ends in a colon"},
		{"resolve|10.96.0.0/24", "a range of addresses"},
		{"resolve|010.096.021.191", "is not a Service name"},
		{"resolve|http://[fe80::1%25eth0]:80/", "has a zone"},
		{"resolve|worker-9:30080", `neither a Service nor a node "worker-9"`},
		{"resolve|worker-9:30080", ":30080 is the NodePort of shop/api, on each node; did you mean worker-1"},
		{"resolve|shop/web/http", "did you mean shop/web:http?"},
		{"resolve|30081", "no Service has NodePort 30081"},
		{"resolve|localhost:80", "no Service has NodePort 80"},
		{"resolve|127.0.0.1", "give it with a NodePort"},
		{"resolve|:0", "a port is a number from 1 to 65535"},
		{"resolve|203.0.113.9:31443", "31443 is the NodePort of port 443"},
		{"resolve|redis:6380|-n|shop", "has no port 6380"},
		{"resolve|10.244.1.16:51234 -> 10.96.21.191:80: i/o timeout", "several addresses (10.244.1.16:51234, "},
		{`resolve|GET http://a:secret@web.shop/ by 10.96.21.191:80: i/o timeout`, "several addresses (http://a:xxxxx@"},
		// --node, --from, -o
		{"trace|shop/web|--node|worker-1 worker-2", "several are separated by commas"},
		{"trace|shop/web|--node|all", "did you mean --all-nodes?"},
		{"trace|shop/web|--node|a,b", `node "a" is not in the snapshot`},
		{"trace|shop/web|--from|", "--from is empty"},
		{"trace|shop/web|--from|1.2.3.4:80", "did you mean 1.2.3.4?"},
		{"trace|shop/web|--from|0.0.0.0", "no packet has this address as its source"},
		{"trace|shop/web|--from|224.0.0.1", "no packet has this address as its source"},
		{"trace|shop/web|--from|external,node", "run the command once for each"},
		{"trace|shop/web|--from|localhost", "did you mean node?"},
		{"trace|shop/web|--from|internet", "did you mean external?"},
		{"trace|shop/web|--from|deploy/web", "give one of the pods of deploy/web"},
		{"trace|shop/web|-o|yml", "did you mean yaml?"},
		{"trace|shop/web|-o|JSON", "did you mean json?"},
		{"trace|shop/web|-o|tabel", "did you mean table?"},
		{"trace|shop/web|-o|out.html", "-o html > out.html"},
		{"resolve|shop/web|-o|html", "-o html is not an output format of this command"},
		// flags and commands
		{"trace|shop/web|-A", "verify -A verifies all Services"},
		{"trace|shop/web|--port|80", "as in SERVICE:PORT"},
		{"trace|shop/web|--json", "-o json prints JSON"},
		{"trace|shop/web|--no-color", "--color never"},
		{"trace|shop/web|-node|worker-1", "did you mean --node?"},
		{"trace|shop/web|-from|pod", "did you mean --from?"},
		{"trace|shop/web|--timeout|5", "a duration, such as 30s"},
		{"trace|shop/web|--live|--probes|many", `--probes "many": a whole number`},
		{"verfy|-A", "did you mean kubectl svcproxy verify?"},
		{"TRACE|shop/web", "did you mean kubectl svcproxy trace?"},
		{"check|shop/web", "did you mean kubectl svcproxy verify?"},
		{"describe|svc|web", "did you mean kubectl svcproxy resolve?"},
		{"help|trace|verify", `there is no command "trace verify"`},
		{"trace|shop/web|--node|worker1", "did you mean worker-1?"},
		{"trace|shop/web|--nodes|worker-1", "did you mean --node?"},
		{"trace|shop/web|--probes|5", "give --live, too"},
		{"trace|shop/web|-o|jsonpath", "-o jsonpath needs a template"},
		{"verify|-A|--all", "did you mean --all-namespaces or --all-nodes"},
		{"modes", "did you mean kubectl svcproxy mode?"},
		{"get|svc", "did you mean kubectl svcproxy resolve?"},
		{"status|shop/web", "status reads a cluster"},
		{"dump|-o|x.tar.gz", "dump reads the nodes of a cluster"},
		{"dump|--script", "leave out --snapshot"},
	})
}

// refusal is a command line, whose words "|" separates, with a part of its error.
type refusal struct{ args, want string }

// refused checks that command lines are refused, each with a snapshot that has all kinds of Services.
func refused(t *testing.T, all []refusal) {
	t.Helper()
	snapshot := kindsOfServices(t)
	for _, tt := range all {
		t.Run(tt.args, func(t *testing.T) {
			args := strings.Split(tt.args, "|")
			if args[0] != "help" {
				args = append(args, "--snapshot", snapshot)
			}
			code, stdout, stderr := runPlugin(t, args...)
			if code != run.ExitUsage || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, tt.want) ||
				strings.Contains(stderr, "secret") {
				t.Errorf("got %d, %q and %q, want %q", code, stdout, stderr, tt.want)
			}
		})
	}
}

// A node may be named by an address or in capitals, as tools print it.
func TestNodesByAddress(t *testing.T) {
	for _, node := range []string{
		"worker-1", "node/worker-1", " worker-1", "10.77.0.11", "worker-1,worker-1", "worker-1.", "node/WORKER-1",
	} {
		code, stdout, stderr := runPlugin(t, "trace", "shop/web", "--node", node, "-o", "name", "--snapshot", broken)
		if code != run.ExitMismatch || stdout != "node/worker-1\n" {
			t.Errorf("%s: got %d, %q and %q", node, code, stdout, stderr)
		}
	}
}

// The code of a finding is known however it was copied.
func TestExplainKnowsCopiedCodes(t *testing.T) {
	for _, args := range [][]string{
		{"MissingEndpoint"},
		{"missingendpoint"},
		{"MISSING-ENDPOINT"},
		{"MissingEndpoint,"},
		{"missing_endpoint"},
		{"MissingEndpoint", "+1"},
		{"Missing", "Endpoint"},
		{"MISMATCH  MissingEndpoint  10.244.3.4:8080"},
		{"MISMATCH: MissingEndpoint"},
		{"https://github.com/svcproxy/kubectl-svcproxy/blob/main/docs/findings.md#missingendpoint"},
		{"#missingendpoint"},
	} {
		code, stdout, stderr := runPlugin(t, append([]string{"explain"}, args...)...)
		if code != run.ExitRight || !strings.HasPrefix(stdout, "MissingEndpoint\n") {
			t.Errorf("%q: got %d, %.40q and %q", args, code, stdout, stderr)
		}
	}
}

// A context that the kubeconfig does not have is named, with those that it has.
func TestUnknownContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	const config = `{"apiVersion": "v1", "kind": "Config", "contexts": [{"name": "prod", "context": {"cluster": "c"}}],
"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]}`
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, service := range []string{"web", "shop/web"} {
		code, _, stderr := runPlugin(t, "trace", service, "--kubeconfig", path, "--context", "prd")
		if want := `there is no context "prd" in the kubeconfig: it has prod; did you mean prod?`; code != run.ExitUsage ||
			!strings.Contains(stderr, want) {
			t.Errorf("%s: got %d and %q, want %q", service, code, stderr, want)
		}
	}
}
