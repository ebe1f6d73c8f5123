// SPDX-License-Identifier: Apache-2.0

// Package collect (temporary stand-in).
package collect

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"time"
)

// Options say what to read, and from where.
type Options struct {
	Root  string
	Files []string
}

// File is one file of the snapshot contract, or why it was not read.
type File struct {
	Name   string
	Data   []byte
	Unread string
}

// Collect is a stand-in.
func Collect(ctx context.Context, o Options, emit func(File) error) error {
	for _, c := range []struct{ name, cmd string }{
		{"iptables-nft-save.txt", "/usr/sbin/iptables-nft-save -c"}, {"iptables-legacy-save.txt", "/usr/sbin/iptables-legacy-save -c"},
		{"ip6tables-nft-save.txt", "/usr/sbin/ip6tables-nft-save -c"}, {"ip6tables-legacy-save.txt", "/usr/sbin/ip6tables-legacy-save -c"},
		{"nft-ruleset.json", "/usr/sbin/nft -j list ruleset"}, {"ipset-save.txt", "/usr/sbin/ipset save"}, {"conntrack.txt", "/usr/sbin/conntrack -L -o extended"},
		{"ip-addr.json", "/usr/bin/ip -j addr"}, {"ip-link.json", "/usr/bin/ip -j -d link"}, {"ip-route.json", "/usr/bin/ip -j route"},
		{"ip6-route.json", "/usr/bin/ip -j -6 route"}, {"ip-rule.json", "/usr/bin/ip -j rule"}, {"ip6-rule.json", "/usr/bin/ip -j -6 rule"},
	} {
		argv := strings.Fields(c.cmd)
		data, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
		if err != nil {
			if err := emit(File{Name: c.name, Unread: err.Error()}); err != nil {
				return err
			}
			continue
		}
		if len(data) == 0 {
			continue
		}
		if err := emit(File{Name: c.name, Data: data}); err != nil {
			return err
		}
	}
	h := http.Client{Timeout: time.Second}
	for name, url := range map[string]string{"configz.json": "10249/configz", "metrics.txt": "10249/metrics", "proxyMode.txt": "10249/proxyMode"} {
		r, err := h.Get("http://127.0.0.1:" + url)
		if err != nil {
			continue
		}
		data, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if err := emit(File{Name: name, Data: data}); err != nil {
			return err
		}
	}
	return nil
}
