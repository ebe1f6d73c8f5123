//go:build ignore

// SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only

// The programs that report packets of the connections that are watched. "make generate" compiles them. Of the kernel's
// types only those members are declared that are read; where a kernel has them is found as the programs are loaded.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define inline static inline __attribute__((always_inline))

// Of uapi/linux/bpf.h and uapi/linux/in.h.
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_RINGBUF = 27, IPPROTO_TCP = 6 };
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*const bpf_ringbuf_output)(void *ringbuf, void *data, u64 size, u64 flags) = (void *)130;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct net_device;
struct ns_common {
	u32 inum;
};
struct net {
	struct ns_common ns;
};
typedef struct {
	struct net *net;
} possible_net_t;
struct net_device {
	int ifindex;
	possible_net_t nd_net;
};
struct sock_common {
	possible_net_t skc_net;
};
struct sock {
	struct sock_common __sk_common;
};
struct dst_entry {
	struct net_device *dev;
};
struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	unsigned long _skb_refdst;
	u8 *head, *data;
	u16 network_header;
};
#pragma clang attribute pop

// READ reads a member; what cannot be read is 0.
#define READ(from, member)                                             \
	({                                                             \
		typeof((from)->member) read;                           \
		bpf_probe_read_kernel(&read, sizeof(read), &(from)->member); \
		read;                                                  \
	})

enum kind { DISCARDED, IN, OUT };

// end is one end of a connection. An IPv4 address has the first 4 bytes.
struct end {
	u8 address[16];
	u16 port; // in network order
	u8 protocol, zero;
};

struct event {
	u64 location; // in the kernel's code, of a discarded packet
	u32 reason;   // of a discarded packet, where the kernel tells
	u32 device;   // its index
	u32 inode;    // of the network namespace
	u8 kind;
	u8 flags; // of TCP
	u16 zero;
	struct end source, target;
};
const struct event *event_type __attribute__((unused)); // for bpf2go, which finds only types of variables

struct {
	int (*type)[BPF_MAP_TYPE_HASH];
	struct end *key;
	u8 *value;
	int (*max_entries)[1024];
} svcproxy_ends SEC(".maps");

struct {
	int (*type)[BPF_MAP_TYPE_RINGBUF];
	int (*max_entries)[1 << 20];
} svcproxy_seen SEC(".maps");

// svcproxy_missed counts the events that there was no room for.
struct {
	int (*type)[BPF_MAP_TYPE_ARRAY];
	u32 *key;
	u64 *value;
	int (*max_entries)[1];
} svcproxy_missed SEC(".maps");

// has_reason: the tracepoint kfree_skb has a reason as its third argument (since Linux 5.17).
volatile const u8 has_reason = 0;

inline int is_watched(const struct end *e) { return bpf_map_lookup_elem(&svcproxy_ends, e) != 0; }

// is_flow reports whether an end is watched, and the address of the other one, as an end without a port.
inline int is_flow(const struct end *e, const struct end *other)
{
	struct end address = *other;

	address.port = 0;
	return is_watched(e) && is_watched(&address);
}

// place is the namespace and the device of a packet: those of its device, else the namespace of its socket, else that of
// the device of its route.
inline void place(struct sk_buff *skb, struct event *e)
{
	struct net_device *dev = READ(skb, dev);
	struct sock *sk = READ(skb, sk);
	struct net *net = 0;

	if (dev) {
		e->device = READ(dev, ifindex);
		net = READ(dev, nd_net.net);
	} else if (sk) {
		net = READ(sk, __sk_common.skc_net.net);
	} else {
		// Without its flags (SKB_DST_NOREF in include/linux/skbuff.h).
		struct dst_entry *dst = (void *)(READ(skb, _skb_refdst) & ~7UL);

		dev = dst ? READ(dst, dev) : 0;
		net = dev ? READ(dev, nd_net.net) : 0;
	}
	if (net)
		e->inode = READ(net, ns.inum);
}

// report reports a packet of which one end is watched; if flows is set, the other one's address has to be, too. header is
// the packet's network header.
inline int report(struct event *e, struct sk_buff *skb, const u8 *header, int flows)
{
	u8 packet[40] __attribute__((aligned(8))) = {};
	const u8 *transport = header + 40;
	u16 ports[2] = {};
	u32 zero = 0;
	u64 *missed;

	bpf_probe_read_kernel(packet, sizeof(packet), header);
	switch (packet[0] >> 4) {
	case 4: // RFC 791
		transport = header + (packet[0] & 0xf) * 4;
		__builtin_memcpy(e->source.address, packet + 12, 4);
		__builtin_memcpy(e->target.address, packet + 16, 4);
		e->source.protocol = packet[9];
		break;
	case 6: // RFC 8200
		__builtin_memcpy(e->source.address, packet + 8, 16);
		__builtin_memcpy(e->target.address, packet + 24, 16);
		e->source.protocol = packet[6];
		break;
	default:
		return 0;
	}
	e->target.protocol = e->source.protocol;
	bpf_probe_read_kernel(ports, sizeof(ports), transport);
	e->source.port = ports[0];
	e->target.port = ports[1];
	if (flows ? !is_flow(&e->source, &e->target) && !is_flow(&e->target, &e->source)
		  : !is_watched(&e->source) && !is_watched(&e->target))
		return 0;
	if (e->source.protocol == IPPROTO_TCP)
		bpf_probe_read_kernel(&e->flags, 1, transport + 13); // RFC 9293, 3.1
	place(skb, e);
	if (bpf_ringbuf_output(&svcproxy_seen, e, sizeof(*e), 0) == 0)
		return 0;
	missed = bpf_map_lookup_elem(&svcproxy_missed, &zero);
	if (missed)
		__sync_fetch_and_add(missed, 1);
	return 0;
}

inline const u8 *network_header(struct sk_buff *skb) { return READ(skb, head) + READ(skb, network_header); }

inline int discarded(u64 *arguments, int flows)
{
	struct sk_buff *skb = (void *)arguments[0];
	struct event e = { .kind = DISCARDED, .location = arguments[1] };

	if (has_reason)
		e.reason = arguments[2];
	return report(&e, skb, network_header(skb), flows);
}

// The first argument of each tracepoint is the packet.

SEC("raw_tracepoint/kfree_skb") // net/core/skbuff.c
int svcproxy_drops(u64 *arguments) { return discarded(arguments, 0); }

SEC("raw_tracepoint/kfree_skb")
int svcproxy_lost(u64 *arguments) { return discarded(arguments, 1); }

// The network header is set after this tracepoint (__netif_receive_skb_core in net/core/dev.c), where the data begin
// with it.
SEC("raw_tracepoint/netif_receive_skb")
int svcproxy_in(u64 *arguments)
{
	struct sk_buff *skb = (void *)arguments[0];
	struct event e = { .kind = IN };

	return report(&e, skb, READ(skb, data), 1);
}

SEC("raw_tracepoint/net_dev_queue")
int svcproxy_out(u64 *arguments)
{
	struct sk_buff *skb = (void *)arguments[0];
	struct event e = { .kind = OUT };

	return report(&e, skb, network_header(skb), 1);
}

// The kernel lets only programs under such a licence read its memory (bpf_probe_read_kernel).
char __license[] SEC("license") = "Dual BSD/GPL";
