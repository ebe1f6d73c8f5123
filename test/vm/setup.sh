# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What a machine needs: packages, and from Debian's kernel package the kernel, the modules of the network, and a RAM disk that finds the
# root. Sourced.
# shellcheck disable=SC2154 # vm sets what is not set here

packages=(
	"$qemu_package"
	busybox-static # the whole RAM disk but for the modules
	cpio           # packs it
	kmod           # modprobe --show-depends, depmod
	xz-utils zstd  # modules are packed by either
	iproute2 iptables ipset ipvsadm conntrack nftables procps openssl
)

# A tenth of the package: networking, and what the machine itself needs.
kept=(net lib crypto arch fs/9p fs/netfs fs/fscache fs/overlayfs drivers/virtio drivers/char drivers/net)

# The modules without which there is no root and no output.
early=(virtio_pci virtio_console 9pnet_virtio 9p overlay)

setup() {
	install_packages
	local package version folder
	version="$(apt-cache show --no-all-versions "$VM_KERNEL" 2>/dev/null | awk '/^Version:/ { print $2 }')"
	package="$(apt-cache depends "$VM_KERNEL" 2>/dev/null | awk '/Depends: linux-image-[0-9]/ { print $2; exit }')"
	[[ -n "$package" && -n "$version" ]] || die "apt knows no kernel $VM_KERNEL: apt-get update, or VM_KERNEL=linux-image-cloud-$arch"
	# The RAM disk depends on this very file.
	folder="$package-$version-$(cat "$here/setup.sh" "$here/init" | sha256sum | cut -c1-8)"
	if [[ ! -e "$cache/$folder/initrd" ]]; then
		unpack_kernel "$package" "$cache/$folder"
	fi
	ln -sfn "$folder" "$current"
	# Kernels to which no link points any more would fill the cache.
	local old
	for old in "$cache"/linux-image-*; do
		[[ ! -L "$old" ]] || continue
		[[ -n "$(find "$cache" -maxdepth 1 -type l -lname "$(basename "$old")")" ]] || rm -rf "$old"
	done
}

install_packages() {
	local p missing=()
	for p in "${packages[@]}"; do
		[[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null || true)" == installed ]] || missing+=("$p")
	done
	# Without package lists apt does not know the kernel either.
	if ((${#missing[@]} == 0)) && apt-cache show "$VM_KERNEL" >/dev/null 2>&1; then
		return
	fi
	((EUID == 0)) || die "packages (${missing[*]}) or apt's package lists are missing, and fetching them needs root"
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq
	((${#missing[@]} == 0)) || apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# unpack_kernel PACKAGE FOLDER: whole or not at all, so that a run that was broken off leaves nothing that could be taken for usable.
unpack_kernel() {
	local package="$1" folder="$2" work version d patterns=()
	mkdir -p "$cache"
	work="$(mktemp -d "$cache/.new.XXXXXX")"
	# shellcheck disable=SC2064 # the folder of now
	trap "rm -rf '$work'" EXIT
	trap 'exit 130' INT TERM HUP
	chmod 755 "$work"
	# apt drops its rights for a download, to a user who may not enter the home of root.
	(cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "$package" >/dev/null) || die "apt-get download $package failed"
	for d in "${kept[@]}"; do
		patterns+=("*/lib/modules/*/kernel/$d/*")
	done
	mkdir "$work/all" "$work/kernel"
	dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$work/all" --wildcards './boot/vmlinuz*' '*/lib/modules/*/modules.*' "${patterns[@]}" 2>/dev/null ||
		true # a kernel need not have every folder; what counts is looked at below
	mkdir "$work/kernel/lib"
	for d in "$work/all/lib/modules" "$work/all/usr/lib/modules"; do
		[[ ! -d "$d" ]] || mv "$d" "$work/kernel/lib/modules"
	done
	[[ -d "$work/kernel/lib/modules" ]] || die "$package has no modules"
	version="$(basename "$work"/kernel/lib/modules/*)"
	mv "$work/all/boot/vmlinuz-$version" "$work/kernel/vmlinuz" || die "$package has no kernel $version"
	depmod -b "$work/kernel" "$version"
	pack_initrd "$work" "$version"
	chmod -R a+rX "$work/kernel"
	rm -rf "$folder"
	mv "$work/kernel" "$folder"
	rm -rf "$work"
	trap - EXIT INT TERM HUP
}

pack_initrd() {
	local work="$1" version="$2" root="$1/initrd" m path n=100
	mkdir -p "$root"/{bin,modules,proc,host,over,root}
	cp "$(command -v busybox)" "$root/bin/busybox"
	cp "$here/init" "$root/init"
	chmod 755 "$root/init"
	# In the order in which they have to be loaded; the RAM disk's insmod unpacks nothing.
	for m in "${early[@]}"; do
		modprobe -d "$work/kernel" -S "$version" --show-depends "$m" | awk '$1 == "insmod" { print $2 }'
	done | awk '!seen[$0]++' >"$work/order"
	while read -r path; do
		m="$root/modules/$n-$(basename "${path%%.ko*}").ko"
		case "$path" in
		*.xz) xz -dc "$path" >"$m" ;;
		*.zst) zstd -qdc "$path" >"$m" ;;
		*) cp "$path" "$m" ;;
		esac
		n=$((n + 1))
	done <"$work/order"
	[[ -s "$work/order" ]] || die "the kernel $version lacks the modules ${early[*]}"
	(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/kernel/initrd"
}
