#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what the tests need on Debian 12 or later and Ubuntu 24.04 or later, as root. It may be run again at any
# time: what is there already is left alone, and package lists are only fetched when something is missing.
set -euo pipefail

packages=(
	gcc libc6-dev # go test -race
	git           # the version that is built into the binary
	iptables      # iptables-nft and -legacy, save and restore: kernel tests and the benchmark
	nftables      # nft
	arptables     # arptables-legacy: rules of ARP that are not of nftables
	nfacct        # objects that kube-proxy's -m nfacct rules name, without which its rules do not load
	ipset         # sets that rules name
	conntrack     # what the kernel made of a packet
	procps        # sysctl
	iproute2      # ip: network namespaces, addresses, routes
	wireguard-tools # wg: tunnels of WireGuard, in the virtual machine
	netbase       # /etc/protocols, which iptables-save prints protocol names from
	kmod          # modprobe
	make
	curl          # the script of dump --script asks kube-proxy
	libcap2-bin   # setcap: executables with capabilities
	jq            # the examples of the runbook
	hunspell hunspell-en-gb # the spelling of the documentation
	# the shells in which TAB is tried
	bash-completion
	zsh
	fish
)

# A browser for the pages of -o html, with a font. Where there is one already (GitHub's machines have Google's), or
# where chromium is a snap (Ubuntu), it is not installed.
# shellcheck disable=SC1091
if ! command -v chromium chromium-browser google-chrome google-chrome-stable >/dev/null && [[ "$(. /etc/os-release && echo "$ID")" == debian ]]; then
	packages+=(chromium fonts-dejavu-core)
fi

missing=()
for p in "${packages[@]}"; do
	if [[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null || true)" != installed ]]; then
		missing+=("$p")
	fi
done
if ((${#missing[@]} == 0)); then
	exit 0
fi
if ((EUID != 0)); then
	echo "these packages are missing, and installing them needs root: ${missing[*]}" >&2
	exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
if ! apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1; then
	# The package lists may be absent (a fresh image has none) or old.
	apt-get update -qq
	apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
