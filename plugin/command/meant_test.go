// SPDX-License-Identifier: Apache-2.0

package command

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// What is nearly an argument, a flag or a command is refused with what may have been meant.
func TestMeantArguments(t *testing.T) {
	refused(t, []refusal{
		// protocols of URLs
		{"resolve|udp://10.96.21.191:80", "service shop/web has no port 80/UDP: it has http 80/TCP"},
		{"resolve|sctp://web.shop", "service shop/web has no SCTP ports: it has http 80/TCP"},
		{"resolve|udp://10.244.1.15", "10.244.1.15 is an endpoint, and not with UDP ports"},
		{"resolve|udp://worker-2:30080", "no Service has NodePort 30080/UDP"},
		// workloads
		{"resolve|deploy/api|-n|shop", "no owner is recorded of api-68b6f9c9d5-jw4pz, api-68b6f9c9d5-v9n2h"},
		{"resolve|deploy/api|-n|shop", "did you mean service/shop/api?"},
		{
			"resolve|sts/redis|-n|shop",
			"there is no pod of statefulset/redis in namespace shop; did you mean service/shop/redis?",
		},
		{"resolve|deploy/api", "did you mean service/shop/api?"},
		{"resolve|deploy/wbe|-n|shop", "did you mean web?"},
		// texts
		{
			"resolve|mongodb://u:secret@web-0.web.shop:80,web-1.web.shop:80/db",
			"has several hosts: give one of them (web-0.web.shop:80, web-1.web.shop:80)",
		},
		// chains
		{
			"resolve|KUBE-SVC-67NZLRHBNDSAWJR",
			"have 16 characters behind KUBE-SVC-, and this one has 15; did you mean KUBE-SVC-67",
		},
		{
			"resolve|KUBE-SEP-LPRYETXTYMQCMNCEE",
			"and this one has 17; did you mean KUBE-SEP-LPRYETXTYMQCMNCE of service/shop/web?",
		},
		{"resolve|KUBE-SVC-67NZLRHBNDSAWJRX", "did you mean KUBE-SVC-67NZLRHBNDSAWJRO of service/shop/web?"},
		// separators
		{"resolve|web/http|-n|shop", "did you mean web:http?"},
		{"resolve|web/80", "did you mean shop/web:80?"},
		{"resolve|worker-2/30080", "did you mean worker-2:30080?"},
		{"resolve|10.77.0.12/30080", "did you mean 10.77.0.12:30080?"},
		{"resolve|web.shop/http", "did you mean web.shop:http?"},
		{"resolve|worker-2:NodePort", "a NodePort is a number; there is 31443 of shop/lb, 30083 of shop/admin"},
		{"resolve|web:HTTP|-n|shop", "service shop/web has no port HTTP: it has http 80/TCP; did you mean http?"},
		{"resolve|shop//web", "did you mean shop/web?"},
		{"resolve|//shop//web", "did you mean shop/web?"},
		{"resolve|/web|-n|shop", "did you mean web?"},
		{"resolve|shop/ web", "did you mean shop/web?"},
		{"resolve|shop%2Fweb", "did you mean shop/web?"},
		{"resolve|web@shop", "did you mean shop/web?"},
		{"resolve|web:80@shop", "did you mean shop/web:80?"},
		{"resolve|web in shop", "did you mean shop/web?"},
		{"resolve|web in the shop namespace", "did you mean shop/web?"},
		{"resolve|service web in namespace shop", "did you mean shop/web?"},
		{"resolve|web (shop)", "did you mean shop/web?"},
		{"resolve|shop::web", "did you mean shop/web?"},
		// addresses and names
		{
			"resolve|localhost",
			"127.0.0.1 is the loopback address, which every node has for itself: give it with a NodePort",
		},
		{"resolve|localhost:http", "a NodePort is a number; there is 31443 of shop/lb"},
		{"resolve|0.0.0.0", "which is the unspecified address"},
		{"resolve|255.255.255.255", "which is the broadcast address"},
		{"resolve|224.0.0.251", "which is a multicast address"},
		{"resolve|169.254.169.254", "which is a link-local address"},
		{"resolve|web.shop.local", "did you mean web.shop.svc.cluster.local?"},
		{"resolve|redis-0.redis", "did you mean redis-0.redis.shop?"},
		// --from, --node
		{
			"trace|shop/web|--from|10.96.21.191",
			"it is the cluster IP of service/shop/web, and a Service's address is never",
		},
		{"trace|shop/web|--from|203.0.113.9", "it is a load-balancer IP of service/shop/lb"},
		{"trace|shop/web|--from|pod:web", "did you mean pod/web?"},
		{"trace|shop/web|--from|node:worker-1", "did you mean node/worker-1?"},
		{"trace|shop/web|--from|WORKER-1", "did you mean node/worker-1?"},
		{"trace|shop/web|--from|node/", `"node/" has no name of a node: give node/NAME`},
		{"trace|shop/web|--from|pod/", `"pod/" has no name of a pod: give pod/NAME`},
		{"trace|shop/web|--node|node/", `"node/" has no name of a node`},
		// -o
		{"trace|shop/web|-o|wider", "did you mean wide?"},
		{"trace|shop/web|-o|mmd", "did you mean mermaid?"},
		{"trace|shop/web|-o|graph", "did you mean mermaid?"},
		{"trace|shop/web|-o|dot", "html, markdown, mermaid; did you mean mermaid?"},
		{"trace|shop/web|-o|jsno", "did you mean json?"},
		{"trace|shop/web|-o|tabl", "did you mean table?"},
		{"trace|shop/web|-o|json,yaml", "it is one of them: run the command once for each"},
		{"resolve|shop/web|-o|", "-o is empty: it may be table, wide"},
		{
			"resolve|shop/web|-o|go-template-file=/nonexistent",
			"-o go-template-file=/nonexistent: the template cannot be read: open",
		},
		{
			"resolve|shop/web|-o|jsonpath-file|--template|/nonexistent",
			"--template /nonexistent: the template cannot be read",
		},
		// flags
		{"trace|shop/web|--namespcae|shop", "did you mean --namespace?"},
		// commands
		{"hlep", "did you mean kubectl svcproxy help?"},
	})
}

// What reads no snapshot is refused, too, with what would be accepted.
func TestMeantWithoutSnapshot(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"explain|hangs", `"connections hang, every time": Dropped, NoRoute`},
		{"explain|connection|refused", `"connections are refused, every time": NoEndpoints`},
		{"completion|tcsh", `there is no completion for "tcsh": the shell may be bash, fish, powershell, zsh`},
		{"completion|zshh", "did you mean zsh?"},
		{"dump|--script|-o|/nonexistent/x.sh", `-o "/nonexistent/x.sh": there is no directory /nonexistent`},
		{"dump|--script|-o|.", `-o "." is a directory: give the name of a file`},
		{"dump|--script|--keep", "leave out --keep"},
	} {
		code, stdout, stderr := runPlugin(t, strings.Split(tt.args, "|")...)
		if code != run.ExitUsage || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: got %d, %q and %q, want %q", tt.args, code, stdout, stderr, tt.want)
		}
	}
}

// --snapshot is offered in place of a cluster by the commands that have it alone.
func TestSnapshotIsOfferedWhereItIs(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for args, has := range map[string]bool{
		"mode": true, "trace shop/web": true, "status": false, "cleanup --node n": false, "program web --node n": false,
		"dump --node n -o x.tar.gz": false,
	} {
		code, _, stderr := runWith(t, none, strings.Fields(args)...)
		if code != run.ExitUsage || strings.Contains(stderr, "--snapshot") != has {
			t.Errorf("%s: got %d and %q, and --snapshot is offered: %t", args, code, stderr, has)
		}
	}
}

// What is taken and looks different from what is meant is said in a note.
func TestNotesOnArguments(t *testing.T) {
	snapshot := kindsOfServices(t)
	for _, tt := range []struct{ args, want string }{
		{
			"resolve redis-1.redis.shop",
			"has the host name redis-1, so that DNS does not know redis-1.redis.shop: there is redis-0",
		},
		{"resolve redis-1.redis.shop.svc.cluster.local", "there is redis-0"},
		{"resolve redis-0.redis.shop", "redis-0.redis.shop is the name of a pod of service/shop/redis"},
		{
			"resolve web-0.web.shop",
			"no endpoint of service/shop/web has a host name, so that DNS does not know web-0.web.shop",
		},
		{"trace shop/web --from 10.244.1.99", "no pod has this address: it is of the pod range of node worker-1"},
		{"trace shop/web --from 10.244.9.9", "no pod and no node has this address"},
	} {
		_, _, stderr := runPlugin(t, append(strings.Fields(tt.args), "--snapshot", snapshot)...)
		if !strings.Contains(stderr, "note: ") || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.args, stderr, tt.want)
		}
	}
}

// TAB completes behind a namespace and behind a kind.
func TestCompletionBehindSlash(t *testing.T) {
	snapshot := kindsOfServices(t)
	for _, tt := range []struct{ args, want string }{
		{"trace shop/w", "shop/web\n"},
		{"trace svc/shop/we", "svc/shop/web\n"},
		{"trace shop/web:h", "shop/web:http\n"},
		{"trace -n shop pod/web-", "pod/web-7c9d8f6b5d-2xkqp\n"},
		{"trace pod/shop/web-", "pod/shop/web-7c9d8f6b5d-2xkqp\n"},
		{"trace -n shop deploy/", "deploy/web\n"},
		{"trace node/", "node/worker-1\n"},
		{"trace web --from node/", "node/worker-1\n"},
		{"trace web --from no", "node\nnode/\n"},
	} {
		words := strings.Fields(tt.args)
		words = append(append([]string{"__completeNoDesc"}, words[0], "--snapshot", snapshot), words[1:]...)
		if _, stdout, _ := runPlugin(t, words...); !strings.HasPrefix(stdout, tt.want) &&
			!strings.Contains(stdout, "\n"+tt.want) {
			t.Errorf("%s: got %q, want %q", tt.args, stdout, tt.want)
		}
	}
}
