// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
)

// A connection to a pod that no longer exists is found, and the command that the finding names removes it.
func TestStaleConnection(t *testing.T) {
	const name, clientIP, gone = app + "-udp", "198.51.100.7", "198.51.100.9"
	svc, err := client.CoreV1().Services(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(40000 + rand.IntN(20000)) // entries of the last run may still be there
	for _, node := range nodes {
		wait(t, "all is right", func() (bool, error) {
			r := svcproxy(t, "trace", name, "--node", node, "-o", "json")
			return r.code == 0, fmt.Errorf("%s", r)
		})
		onNode(t, node, nil, "/usr/sbin/conntrack", "-I", "-p", "udp", "-s", clientIP, "-d", svc.Spec.ClusterIP, "--sport",
			port, "--dport", "80",
			"-r", gone, "-q", clientIP, "--reply-port-src", "8080", "--reply-port-dst", port, "-t", "120")
		r := svcproxy(t, "trace", name, "--node", node, "-o", "json")
		if r.code != 1 || !slices.Equal(codes(&r.report), []string{judge.ConntrackStale}) {
			t.Fatalf("node %s: %v\n%s", node, codes(&r.report), r)
		}
		command := r.report.Nodes[0].Findings[0].Commands[0]
		if command.Node != node {
			t.Errorf("%s is to be run on node %q, not on %s", command.Line, command.Node, node)
		}
		words := strings.Fields(command.Line) // the tests' pod has no shell
		words[0] = "/usr/sbin/" + words[0]
		onNode(t, node, nil, words...)
		if r := svcproxy(t, "trace", name, "--node", node, "-o", "json"); r.code != 0 {
			t.Errorf("node %s, after %s\n%s", node, command.Line, r)
		}
	}
}
