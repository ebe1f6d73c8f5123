// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// owned is the snapshot with the owners of the pods of web, as a cluster records them.
func owned(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(broken)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "cluster", "pods.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const label = "      app: web\n"
	if !strings.Contains(string(data), label) {
		t.Fatal("no pod of web")
	}
	text := strings.ReplaceAll(string(data), label, label+"      pod-template-hash: 7c9d8f6b5d\n"+
		"    ownerReferences:\n    - {kind: ReplicaSet, name: web-7c9d8f6b5d}\n")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What people paste leads to the Service that they mean.
func TestPastedArguments(t *testing.T) {
	snapshot := owned(t)
	for _, tt := range []struct{ args, want string }{
		// names
		{"web -n shop", "shop/web"},
		{"web -n=shop", "shop/web"},
		{"svc/web -n shop", "shop/web"},
		{"svc web -n shop", "shop/web"},
		{"service web -n shop", "shop/web"},
		{"services/web -n shop", "shop/web"},
		{"Service/web -n shop", "shop/web"},
		{"shop/web", "shop/web"},
		{"shop/web -n shop", "shop/web"},
		{"service/shop/web", "shop/web"},
		{"svc shop/web", "shop/web"},
		{"shop/svc/web", "shop/web"},
		{"/api/v1/namespaces/shop/services/web", "shop/web"},
		{"endpoints/web -n shop", "shop/web"},
		{"default/kubernetes", "default/kubernetes"},
		{"kubernetes", "default/kubernetes"},
		// ports
		{"web:80 -n shop", "shop/web"},
		{"web:http -n shop", "shop/web"},
		{"shop/web:80/TCP", "shop/web"},
		{"svc/shop/web:http", "shop/web"},
		{"kube-system/kube-dns:53/UDP", "kube-system/kube-dns"},
		// names of DNS
		{"web.shop", "shop/web"},
		{"web.shop:80", "shop/web"},
		{"web.shop.svc", "shop/web"},
		{"web.shop.svc.cluster.local", "shop/web"},
		{"web.shop.svc.cluster.local.", "shop/web"},
		{"web.shop.svc.cluster.local:80", "shop/web"},
		{"WEB.SHOP.svc.cluster.local", "shop/web"},
		{"_http._tcp.web.shop.svc.cluster.local", "shop/web"},
		{"web-0.web.shop.svc.cluster.local", "shop/web"},
		{"10-244-1-15.shop.pod.cluster.local", "shop/web"},
		// URLs
		{"http://web.shop/", "shop/web"},
		{"http://web.shop:80/path?query=1", "shop/web"},
		{"http://web.shop.svc.cluster.local/healthz", "shop/web"},
		{"http://10.96.21.191/", "shop/web"},
		{"http://web/ -n shop", "shop/web"},
		{"https://10.96.0.1", "default/kubernetes"},
		{"https://kubernetes.default.svc", "default/kubernetes"},
		{"tcp://web.shop:80", "shop/web"},
		{"http://worker-2:30080/", "shop/api"},
		{"web.shop:80/", "shop/web"},
		// addresses
		{"10.96.21.191", "shop/web"},
		{"10.96.21.191:80", "shop/web"},
		{"10.96.21.191:http", "shop/web"},
		{"10.96.21.191:80/tcp", "shop/web"},
		{"10.96.0.10:53", "kube-system/kube-dns"},
		{"10.244.1.15", "shop/web"},
		{"10.244.1.15:8080", "shop/web"},
		{"::ffff:10.96.21.191", "shop/web"},
		// NodePorts
		{"10.77.0.12:30080", "shop/api"},
		{"[fd00:77::12]:30080", "shop/api"},
		{"worker-2:30080", "shop/api"},
		{"node/worker-2:30080", "shop/api"},
		{"localhost:30080", "shop/api"},
		{"127.0.0.1:30088", "shop/frontend"},
		{":30088", "shop/frontend"},
		{"30088", "shop/frontend"},
		// pods and workloads
		{"pod/web-7c9d8f6b5d-2xkqp -n shop", "shop/web"},
		{"pod web-7c9d8f6b5d-2xkqp -n shop", "shop/web"},
		{"pod/shop/web-7c9d8f6b5d-2xkqp", "shop/web"},
		{"po/web-7c9d8f6b5d-2xkqp:http -n shop", "shop/web"},
		{"deploy/web -n shop", "shop/web"},
		{"deploy web -n shop", "shop/web"},
		{"deployment.apps/web -n shop", "shop/web"},
		{"replicaset.apps/web-7c9d8f6b5d -n shop", "shop/web"},
		{"endpointslice.discovery.k8s.io/web-wgcb6 -n shop", "shop/web"},
		// chains of kube-proxy
		{"KUBE-SVC-67NZLRHBNDSAWJRO", "shop/web"},
		{"KUBE-SEP-LPRYETXTYMQCMNCE", "shop/web"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			args := append(strings.Fields(tt.args), "--snapshot", snapshot, "-o",
				"jsonpath={.service.namespace}/{.service.name}")
			code, stdout, stderr := runPlugin(t, append([]string{"resolve"}, args...)...)
			if code != run.ExitRight || strings.TrimSpace(stdout) != tt.want || strings.Contains(stderr, "error") {
				t.Errorf("got %d, %q and %q, want %s", code, stdout, stderr, tt.want)
			}
		})
	}
}

// What is mistyped is named, in one line, with exit code 2.
func TestMistypedArguments(t *testing.T) {
	snapshot := owned(t)
	for _, tt := range []struct{ args, want string }{
		{"trace web -n shpo", `there is one in namespace shop: add -n shop`},
		{"trace shpo/web", `service "web" not found in namespace "shpo"; there is one in namespace shop`},
		{"trace batch2 -n shpo", `which has no Service at all: is the namespace right (-n)? Did you mean shop?`},
		{"trace wbe -n shop", "did you mean web?"},
		{"trace frontnd.shop", "did you mean frontend?"},
		{"trace Web -n shop", "names are written in lower case, web"},
		{"trace shop/web -n other", `"shop/web" names namespace shop, and -n namespace other: give one of them`},
		{"trace service/shop/web -n other", `"service/shop/web" names namespace shop, and -n namespace other`},
		{"trace web.shop.svc.cluster.local -n other", "names namespace shop, and -n namespace other"},
		{"resolve shop/web -n other", "names namespace shop, and -n namespace other"},
		{"verify shop/web -n other", "names namespace shop, and -n namespace other"},
		{"trace shop web", "Service web in namespace shop is shop/web"},
		{"trace web:81 -n shop", "service shop/web has no port 81: it has http 80/TCP"},
		{"trace web:htpp -n shop", "did you mean http?"},
		{"trace web:8080 -n shop", "8080 is the target port of port 80"},
		{"trace api:30080 -n shop", "30080 is the NodePort of port 80"},
		{"trace web:80:30080/TCP -n shop", "give the port, 80, or the NodePort alone"},
		{"trace web:80/healthz -n shop", "leave out a path"},
		{"trace http://web.shop:8080/path", "service shop/web has no port 8080"},
		{"trace https://web.shop/", "service shop/web has no port 443"},
		{"trace http://me:secret@we~b/", "xxxxx@we~b"},
		{"trace 10.96.21.192", "no Service has the address 10.96.21.192"},
		{"trace 10.96.21.300", "is not a Service name"},
		{"trace 10.96.0.0/16", "is a range of addresses"},
		{"trace 10.77.0.12", "10.77.0.12 is an address of node worker-2: give it with a NodePort"},
		{"trace 10.77.0.12:31000", "no Service has NodePort 31000"},
		{"trace worker-2", "worker-2 is a node: give it with a NodePort, as worker-2:30080"},
		{"trace worker-2:30080", "worker-2:30080 is on node worker-2, which is not in the snapshot"},
		{"trace node/worker-9:30080", `there is no node "worker-9"`},
		{"trace 10.244.1.15:9090", "10.244.1.15 is an endpoint, and not with port 9090"},
		{"trace pod/web-7c9d8f6b5d-2xkq -n shop", "did you mean web-7c9d8f6b5d-2xkqp"},
		{"trace deploy/wbe -n shop", "there is no pod of deployment/wbe in namespace shop"},
		{"trace deploy/web", "there is no deployment/web in namespace default, but one in namespace shop"},
		{"trace ingress.networking.k8s.io/web", "is not a kind that leads to a Service"},
		{"trace KUBE-SERVICES", "belongs to no single Service"},
		{"trace KUBE-SVC-AAAAAAAAAAAAAAAA", "is not a chain of any current Service or endpoint"},
		{"trace web -n shop --node worker1", "did you mean worker-1?"},
		{"trace web -n shop --node node/worker1", "did you mean worker-1?"},
		{"trace web -n shop --from client", `--from "client" is not pod`},
		{"trace web -n shop --from nod", "did you mean node or pod?"},
		{"trace web -n shop --from worker-1", "did you mean node/worker-1?"},
		{"trace web -n shop --from node/worker1", "did you mean worker-1 or"},
		{"trace web -n shop --from pod/web-7c9d8f6b5d-2xkq", "did you mean web-7c9d8f6b5d-2xkqp"},
		{"trace web -n shop --from web-7c9d8f6b5d-2xkqp", "did you mean pod/web-7c9d8f6b5d-2xkqp?"},
		{"trace web --nodes worker-1", "unknown flag: --nodes; did you mean --node?"},
		{"trace web --all-node", "did you mean --all-nodes?"},
		{"trace web --outptu json", "did you mean --output?"},
		{"trcae web", "did you mean kubectl svcproxy trace?"},
		{"help trce", `there is no command "trce"; did you mean trace?`},
		{"help trace web", `there is no command`},
		{"web", "to trace a Service: kubectl svcproxy trace web"},
		{"shop/web", "to trace a Service: kubectl svcproxy trace shop/web"},
		{"resolve web -n shop --node worker9", `there is no node "worker9"`},
		{"mode worker1", "did you mean worker-1?"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			args := strings.Fields(tt.args)
			if !strings.HasPrefix(tt.args, "help") && !strings.HasPrefix(tt.args, "trcae") && len(args) > 1 {
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

// What -o name prints is taken again.
func TestNamesAreArguments(t *testing.T) {
	for _, first := range []string{
		"verify -A -o name", "trace web -n shop -o name", "resolve web -n shop -o name", "mode -o name",
	} {
		_, stdout, stderr := runPlugin(t, append(strings.Fields(first), "--snapshot", broken)...)
		for printed := range strings.FieldsSeq(stdout) {
			again := []string{"resolve", printed, "--snapshot", broken}
			switch {
			case strings.HasPrefix(printed, "node/"):
				again = []string{"mode", printed, "--snapshot", broken}
			case strings.Count(printed, "/") == 1:
				again = append(again, "-n", "shop")
			}
			if code, _, stderr := runPlugin(t, again...); code != run.ExitRight {
				t.Errorf("%s printed %s: got %d and %s", first, printed, code, stderr)
			}
		}
		if stdout == "" && first != "mode -o name" {
			t.Errorf("%s printed nothing: %s", first, stderr)
		}
	}
}

// Services of several namespaces may be named at once.
func TestVerifyInSeveralNamespaces(t *testing.T) {
	code, stdout, stderr := runPlugin(t, "verify", "shop/frontend", "kube-system/kube-dns", "--snapshot", broken)
	if code != run.ExitRight || !strings.Contains(stdout, "2 Services") {
		t.Errorf("got %d, %s and %s", code, stdout, stderr)
	}
}
