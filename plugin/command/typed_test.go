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
		{"(shop/web)", "", "shop/web"},
		{"shop/web;", "", "shop/web"},
		// with a flag of kubectl, and the dashes that editors make of "-"
		{"shop/web.", "", "shop/web"},
		{"\u00a0shop/web\n", "", "shop/web"},
		// errors, and lines of this tool and of kubectl
		{"KUBE-SVC-67NZLRHBNDSAWJRO:", "", "shop/web"},
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
		{"[::1]:30080", "", "shop/api"},
		{"http://[fd00:77::12]:30080/x", "", "shop/api"},
		// in lines of logs and of listings
		{"KUBE-SVC-67NZLRHBNDSAWJRO,", "", "shop/web"},
		// commands, variables and URLs that are broken
		// lines about packets, headers and fields
		{"kube-svc-67nzlrhbndsawjro", "", "shop/web"},
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
