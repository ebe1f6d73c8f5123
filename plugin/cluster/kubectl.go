// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
)

// objectName is a name behind a kind: web, shop/web, web:http.
var objectName = lazyregexp.New(`^[a-z0-9-]+(?:/[a-z0-9-]+)?(?::[a-z0-9-]+)?$`)

// ofKubectl is what a command of kubectl is about, with the namespace that it has: -n shop get svc/web -o yaml is about
// svc/web -n shop. It is the command itself where that is not known.
func ofKubectl(command string) string {
	command, _, _ = strings.Cut(command, " | ")
	if before, of, ok := strings.Cut(command, " -- "); ok { // what is run in a pod
		if m := anyNamespace().FindStringSubmatch(" " + before); m != nil {
			return inNamespace(of, m[1])
		}
		return of
	}
	var names []string
	namespace := ""
	words := strings.Fields(command)
	for i := 0; i < len(words); i++ {
		flag, value, has := strings.Cut(words[i], "=")
		switch {
		case !strings.HasPrefix(flag, "-"):
			names = append(names, words[i])
			continue
		case !strings.HasPrefix(flag, "--") && strings.HasPrefix(flag, "-n") && len(flag) > len("-n"):
			flag, value, has = "-n", flag[len("-n"):], true // -nshop
		}
		if !has && slices.Contains(valueFlags, flag) && i+1 < len(words) {
			i++
			value = words[i]
		}
		if flag == "-n" || flag == "--namespace" {
			namespace = value
		}
	}
	if len(names) > 0 && names[0] == "svcproxy" {
		names = names[1:]
	}
	switch {
	case len(names) < 2:
		return command
	case names[0] == "rollout" && len(names) > 2:
		names = names[1:]
	case (names[0] == "get" || names[0] == "describe") && len(names) > 3: // several objects
		return strings.Join(names[1:], " ")
	}
	out := strings.Join(names[1:min(len(names), 3)], " ")
	if namespace != "" {
		out += " -n " + namespace
	}
	return out
}

// valueFlags are flags of kubectl whose value is the next word.
var valueFlags = []string{
	"-n", "--namespace", "-o", "--output", "-l", "--selector", "-c", "--container", "--context", "--kubeconfig",
	"--cluster", "--user", "--as", "-s", "--server", "--sort-by", "--field-selector", "--tail", "--since", "--node",
	"--from", "--snapshot", "--timeout", "-v",
}

// verbs are what follows k, the short form of kubectl that many have, where it is not the name of a Service.
var verbs = []string{
	"get", "describe", "logs", "exec", "port-forward", "edit", "delete", "expose", "rollout", "scale", "patch", "label",
	"annotate", "svcproxy",
}

// isKubectl tells whether a line that begins with kubectl, oc or k is a command.
func isKubectl(before, command string) bool {
	if !strings.HasSuffix(strings.TrimLeft(before, "$# "), "k ") {
		return true
	}
	first, _, _ := strings.Cut(command, " ")
	return strings.HasPrefix(first, "-") || slices.Contains(verbs, first)
}

// oneLabel is a name without a domain, as a URL has it or alone.
var oneLabel = lazyregexp.New(`^((?:[a-z]+://)?)([a-z][a-z0-9-]*)((?::\d+)?(?:/.*)?)$`)

// inNamespace gives the name that a command connects to the namespace of the pod that it is run in.
func inNamespace(command, namespace string) string {
	words := strings.Fields(command)
	for i := len(words) - 1; i > 0; i-- {
		if m := oneLabel().FindStringSubmatch(words[i]); m != nil {
			words[i] = m[1] + m[2] + "." + namespace + m[3]
			break
		}
	}
	return strings.Join(words, " ")
}
