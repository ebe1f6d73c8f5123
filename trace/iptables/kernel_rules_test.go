// SPDX-License-Identifier: Apache-2.0

package iptables

// kernelRules are given to the kernel and to the ops; which of them a packet matched the kernel's counters tell. A word
// in front keeps a rule to some hooks (p, i, f, o, t for POSTROUTING), where the kernel takes it in no other, or to
// table raw.
const kernelRules = `
-j MARK --set-xmark 0x4001/0xffff
mangle -j CONNMARK --set-xmark 0x10/0xf0
-s 10.1.0.0/24
! -s 10.1.0.0/24
-s 10.0.0.2/255.0.0.255
! -s 10.1.0.3/255.255.0.255
-d 10.2.0.2/32
! -d 10.2.0.2/32
pif -i vea
pif ! -i vea
pif -i ve+
pif ! -i lo+
fot -o veb
fot ! -o lo
-p tcp
! -p tcp
-p 17
-f
! -f
-p tcp -m tcp --dport 80
-p tcp -m tcp ! --dport 80
-p tcp -m tcp --dport 81:90
-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN
-p tcp -m tcp --tcp-flags SYN,RST NONE
-p tcp -m tcp ! --tcp-flags RST NONE
-p tcp -m tcp --tcp-flags FIN,SYN,ACK SYN,ACK
-p tcp -m tcp --sport 1:65535
-p tcp -m tcp --sport 0
-p udp -m udp --dport 80
-p udp -m udp ! --dport 1:79
-p tcp -m multiport --dports 22,80:90
-p udp -m multiport ! --dports 22,80:90
-p tcp -m multiport --ports 80
-m conntrack --ctstate NEW
-m conntrack --ctstate INVALID
-m conntrack ! --ctstate RELATED,ESTABLISHED
-m conntrack --ctstate UNTRACKED
-m conntrack --ctstate DNAT,SNAT
-m conntrack --ctdir ORIGINAL
-m conntrack --ctdir REPLY
-m conntrack --ctstate NEW --ctdir ORIGINAL
-m conntrack --ctstate INVALID --ctdir REPLY
-m conntrack --ctproto 6
-m conntrack --ctorigdst 10.2.0.2
-m conntrack ! --ctorigsrc 10.1.0.0/24
-m conntrack --ctreplsrc 10.2.0.2 --ctorigdstport 80
-m conntrack --ctrepldst 10.1.0.2 --ctreplsrcport 80
-m conntrack --ctstatus CONFIRMED
-m conntrack ! --ctstatus ASSURED
-m conntrack --ctstatus NONE
-m state --state NEW,RELATED
-m state ! --state NEW
-m mark --mark 0x4000/0x4000
-m mark ! --mark 0x4001
-m mark --mark 0x1
-m connmark --mark 0x10/0xf0
-m connmark ! --mark 0x7
-m addrtype --dst-type LOCAL
-m addrtype ! --src-type LOCAL
-m addrtype --dst-type UNICAST
-m addrtype --src-type LOCAL,UNICAST
-m addrtype --dst-type MULTICAST
-m addrtype --dst-type BROADCAST,ANYCAST
pi -m addrtype --dst-type LOCAL --limit-iface-in
pi -m addrtype --dst-type UNICAST --limit-iface-in
pi -m addrtype ! --src-type LOCAL --limit-iface-in
ot -m addrtype --src-type LOCAL --limit-iface-out
ot -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL
ot -m addrtype --dst-type LOCAL --limit-iface-out
-m iprange --src-range 10.1.0.1-10.1.0.9
-m iprange ! --dst-range 10.2.0.0-10.2.0.255
-m recent --rcheck --seconds 60 --reap --name L1 --rsource
-m recent ! --rcheck --name L1 --rsource
-m recent --set --name L1 --rsource
-m recent --rcheck --seconds 60 --reap --name L1 --rsource
-m recent --update --name L1 --rsource
-m recent ! --rcheck --name L1 --rsource
-m recent --remove --name L1 --rsource
-m recent --rcheck --name L1 --rsource
-m recent ! --set --name L2 --rsource
-m recent --rcheck --name L2 --rsource
-m recent --remove --name L2 --rsource
-m recent --remove --name L2 --rsource
-m recent --update --hitcount 3 --name L2 --rsource
-m recent --set --name L3 --rdest
-p tcp -m recent --set --name L4 --rsource -m tcp --dport 99
-m recent --rcheck --name L4 --rsource
-m recent --remove --name L4 --rsource
-m pkttype --pkt-type unicast
-m pkttype --pkt-type multicast
-p icmp -m icmp --icmp-type 8
-p esp -m esp --espspi 1:2
-p ah -m ah --ahspi 1:2
-p ipcomp -m ipcomp --ipcompspi 1:2
-p dccp -m dccp --dport 80
-p dccp -m dccp --dccp-types REQUEST
-p sctp -m sctp --dport 80
pif -p tcp -m osf --genre Linux
-p tcp -m tcpmss --mss 1:100
it -m cgroup --cgroup 1
-m connlabel --label 5
-j LOG --log-prefix x
-j NFLOG --nflog-group 5
-j AUDIT --type accept
-j IDLETIMER --timeout 60 --label x
-j RATEEST --rateest-name x --rateest-interval 250ms --rateest-ewma 0.5s
mangle -p udp -j CHECKSUM --checksum-fill
mangle -p tcp -j ECN --ecn-tcp-remove
mangle -p tcp -j TCPOPTSTRIP --strip-options timestamp
fot -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1000
raw -j TRACE
-j SET --add-set seen src
-m set --match-set seen src
p -m rpfilter
p -m rpfilter --invert
p -m rpfilter --loose --validmark
p -m rpfilter --accept-local
ot -m owner --socket-exists
ot -m owner ! --socket-exists
ot -m owner --uid-owner 4711
ot -m owner ! --uid-owner 4711 ! --gid-owner 4711
pif -m mac --mac-source 02:00:00:00:00:77
pif -m mac ! --mac-source 02:00:00:00:00:77
pift -m physdev --physdev-in veth9
pif -m physdev ! --physdev-in veth9
-m physdev ! --physdev-is-bridged
-m helper --helper ftp
-m helper ! --helper ftp
-m limit --limit 5/sec
-m tos --tos 0x00/0xff
-m tos ! --tos 0x10/0x3f
pif -m devgroup --src-group 0
pif -m devgroup ! --src-group 0x0
fot -m devgroup --dst-group 0x7
fot -m devgroup ! --dst-group 0x7
-m length --length 0:10
-m ttl --ttl-gt 70
-m ttl --ttl-gt 1
-m ttl --ttl-lt 2
-m ttl ! --ttl-eq 1
-m time --datestop 2026-01-01T00:00:00
-m time --datestart 2026-01-01T00:00:00
-m time --datestart 2037-01-01T00:00:00
-m time --timestart 06:00:00 --timestop 18:00:00
-m time --timestart 18:00:00 --timestop 06:00:00
-m time --timestart 18:00:00 --timestop 06:00:00 --contiguous --weekdays Mon,Wed,Fri,Sun
-m time --timestart 06:00:00 --timestop 05:00:00 --contiguous --monthdays 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31
-m time --weekdays Sat,Sun
-m time --weekdays Mon,Tue,Wed,Thu,Fri
-m time --monthdays 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
-m time --timestart 06:00:00 --timestop 18:00:00 --kerneltz
-m comment --comment "a \"b\" -j DROP"
pi -m socket --transparent
-m statistic --mode random --probability 1.00000000000
-m statistic --mode random --probability 0.00000000000
-m set --match-set pods src
-m set ! --match-set pods src
-m set --match-set pods dst
-m set --match-set pods src ! --update-counters
raw -j CT --notrack
-m connlabel --label 5
-m conntrack --ctstate UNTRACKED
-m conntrack --ctstate INVALID,NEW
-m conntrack ! --ctstate UNTRACKED --ctdir ORIGINAL
-m connmark ! --mark 0x7
-m mark --mark 0x4001/0xffff
-j MARK --set-xmark 0x20/0x0
-m mark --mark 0x4021/0xffff
-j MARK --set-xmark 0x0/0xffffffff
-m mark --mark 0x0
`
