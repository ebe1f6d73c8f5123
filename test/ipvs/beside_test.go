// SPDX-License-Identifier: Apache-2.0

//go:build vm

package ipvs

import (
	"context"
	"strings"
	"testing"
)

// beside is another program that writes rules, policies, virtual servers and addresses all the time. Between two rounds
// they are as at the beginning.
type beside struct {
	turn   chan struct{} // whoever has what is in it may read or write
	rounds int
	end    func()
}

// besideLines are the commands of one round.
var besideLines = []string{
	"iptables -w -A THEIRS -s 192.0.2.1 -j DROP", "iptables -w -P FORWARD ACCEPT",
	"ipvsadm -A -t 192.0.2.77:80 -s rr", "ipvsadm -a -t 192.0.2.77:80 -r 192.0.2.78:80 -m",
	"ip address add 192.0.2.79/32 dev lo",
	"iptables -w -D THEIRS -s 192.0.2.1 -j DROP", "iptables -w -P FORWARD DROP",
	"ipvsadm -D -t 192.0.2.77:80", "ip address delete 192.0.2.79/32 dev lo",
}

// writeBeside begins it. The caller ends it.
func writeBeside(t *testing.T) *beside {
	t.Helper()
	do(t, "iptables -w -N THEIRS")
	do(t, "iptables -w -A THEIRS -s 192.0.2.9 -j RETURN")
	do(t, "iptables -w -I FORWARD -j THEIRS")
	do(t, "iptables -w -P FORWARD DROP")
	b := &beside{turn: make(chan struct{}, 1)}
	b.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			b.paused(func() { err = b.round(context.WithoutCancel(ctx)) })
		}
		ended <- err
	}()
	b.end = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		do(t, "iptables -w -P FORWARD ACCEPT")
		do(t, "iptables -w -D FORWARD -j THEIRS")
		do(t, "iptables -w -F THEIRS")
		do(t, "iptables -w -X THEIRS")
	}
	return b
}

// paused calls a function between two rounds.
func (b *beside) paused(do func()) {
	<-b.turn
	defer func() { b.turn <- struct{}{} }()
	do()
}

func (b *beside) round(ctx context.Context) error {
	b.rounds++
	for _, line := range besideLines {
		words := strings.Fields(line)
		if _, err := command(ctx, "", words[0], words[1:]...); err != nil {
			return err
		}
	}
	return nil
}
