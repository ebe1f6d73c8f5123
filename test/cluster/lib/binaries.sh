# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Builds what is not in the cache: Kubernetes and etcd, kube-proxies of other versions, and containerd with runc and the CNI plugins, from
# their Go modules. Sourced.

# staging VERSION prints replace directives: k8s.io/kubernetes names its staging modules as v0.0.0, and replaces them by folders that a
# module does not have; the published ones have the same version with a 0 in front.
staging() {
	echo "replace ("
	awk -v v="v0.${1#v1.}" '/^replace \(/ { r = 1; next } r && /^\)/ { r = 0 } r && $2 == "=>" { print "\t" $1, "=>", $1, v }' "$(module_of "$1")"
	echo ")"
}

# module_of VERSION prints where the go.mod of Kubernetes is.
module_of() { echo "$(go env GOMODCACHE)/k8s.io/kubernetes@$1/go.mod"; }

# kubernetes_mod DIR writes a go.mod for KUBERNETES_VERSION.
kubernetes_mod() {
	local dir="$1" source
	go mod download "k8s.io/kubernetes@$KUBERNETES_VERSION"
	source="$(module_of "$KUBERNETES_VERSION")"
	mkdir -p "$dir"
	{
		echo "module github.com/svcproxy/kubectl-svcproxy/test/cluster/k8s"
		echo
		grep '^go ' "$source"
		echo
		grep '^godebug' "$source" || true
		echo
		echo "require k8s.io/kubernetes $KUBERNETES_VERSION"
		awk '$1 == "go.etcd.io/etcd/server/v3" { print "require", $1, $2; exit }' "$source"
		echo
		echo "tool ("
		printf '\tk8s.io/kubernetes/cmd/%s\n' kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl
		echo "	go.etcd.io/etcd/server/v3"
		echo ")"
		echo
		staging "$KUBERNETES_VERSION"
	} >"$dir/go.mod"
	(cd "$dir" && go mod tidy)
}

build_kubernetes() {
	local component missing=() mod="$here/k8s" p
	for component in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl; do
		[[ -x "$bin/$component" ]] || missing+=("$component")
	done
	((${#missing[@]} > 0)) || return 0
	if ! grep -q "k8s.io/kubernetes $KUBERNETES_VERSION " "$mod/go.mod"; then
		mod="$cache/mod-kubernetes-$KUBERNETES_VERSION"
		[[ -e "$mod/go.sum" ]] || kubernetes_mod "$mod"
	fi
	mkdir -p "$bin"
	for component in "${missing[@]}"; do
		p="k8s.io/kubernetes/cmd/$component"
		[[ "$component" != etcd ]] || p=go.etcd.io/etcd/server/v3
		say "building $component $KUBERNETES_VERSION"
		(cd "$mod" && CGO_ENABLED=0 go build -trimpath -ldflags "$(stamp "$KUBERNETES_VERSION")" -o "$bin/.$component" "$p")
		mv "$bin/.$component" "$bin/$component"
	done
}

# stamp VERSION prints the linker's flags by which a program of Kubernetes knows its version.
stamp() {
	local p flags="-s -w"
	for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		flags+=" -X $p.gitVersion=$1 -X $p.gitMajor=1 -X $p.gitMinor=$(minor_of "$1")"
		flags+=" -X $p.gitTreeState=clean -X $p.gitCommit=unknown -X $p.buildDate=2026-01-01T00:00:00Z"
	done
	echo "$flags"
}

# proxy_dir VERSION is where the kube-proxy of a version is kept, and its images.
proxy_dir() {
	if [[ "$1" == "$KUBERNETES_VERSION" ]]; then
		echo "$bin"
	else
		echo "$cache/kube-proxy-$1-$go_version-$(go env GOARCH)"
	fi
}

# pin_proxy VERSION writes k8s/VERSION.mod where there is none, and its .sum: what the kube-proxy of that version is built from. It is not
# tidied, which would fetch what only tests of Kubernetes need; the build adds the checksums of what it needs itself.
pin_proxy() {
	local version="$1" mod="$here/k8s/$1.mod"
	[[ "$version" =~ ^v1\.[0-9]+\.[0-9]+$ ]] || die "$version is no version of Kubernetes: one such as v1.31.14 is"
	go mod download "k8s.io/kubernetes@$version" >/dev/null
	rm -f "${mod%.mod}.sum"
	[[ -e "$mod" ]] || {
		echo "module github.com/svcproxy/kubectl-svcproxy/test/cluster/k8s"
		echo
		grep '^go ' "$(module_of "$version")"
		echo
		if grep '^godebug' "$(module_of "$version")"; then
			echo
		fi
		echo "require k8s.io/kubernetes $version"
		echo
		staging "$version"
	} >"$mod"
	(cd "$here/k8s" && CGO_ENABLED=0 go build -mod=mod -modfile="$mod" -trimpath -ldflags "$(stamp "$version")" -o /dev/null k8s.io/kubernetes/cmd/kube-proxy)
}

# build_proxy VERSION builds a kube-proxy alone. Several nodes may ask for it at once.
build_proxy() {
	local version="$1" mod="$here/k8s/$1.mod" dir
	dir="$(proxy_dir "$version")"
	mkdir -p "$cache"
	(
		flock 9
		[[ ! -x "$dir/kube-proxy" ]] || exit 0
		[[ -e "$mod" ]] || die "there is no k8s/$version.mod: \"cluster pin $version\" writes it; there is $(proxy_versions | xargs)"
		mkdir -p "$dir"
		say "building kube-proxy $version"
		cd "$here/k8s"
		CGO_ENABLED=0 go build -modfile="$mod" -trimpath -ldflags "$(stamp "$version")" -o "$dir/.kube-proxy" k8s.io/kubernetes/cmd/kube-proxy
		mv "$dir/.kube-proxy" "$dir/kube-proxy"
	) 9>"$cache/kube-proxy.lock"
}

# proxy_versions lists those that have a file of modules, in order.
proxy_versions() {
	find "$here/k8s" -name 'v*.mod' -printf '%f\n' | sed 's/\.mod$//' | sort -V
}

# runc needs cgo, for what has to be done before Go's runtime starts, and seccomp, without which no ordinary pod starts.
build_runtime() {
	local c=github.com/containerd/containerd/v2 p=github.com/containernetworking/plugins/plugins work
	[[ ! -x "$runtime/runc" ]] || return 0
	say "building containerd, runc and the CNI plugins"
	work="$runtime.new"
	rm -rf "$work"
	mkdir -p "$work"
	(
		cd "$here/containerd"
		CGO_ENABLED=0 go build -trimpath -tags no_btrfs,no_devmapper,no_zfs \
			-ldflags "-s -w -X $c/version.Version=$(go list -m -f '{{.Version}}' "$c")" -o "$work/" \
			"$c/cmd/containerd" "$c/cmd/containerd-shim-runc-v2" "$c/cmd/ctr" "$p/main/bridge" "$p/main/loopback" "$p/ipam/host-local" "$p/meta/portmap"
		CGO_ENABLED=1 go build -trimpath -tags netgo,osusergo,seccomp \
			-ldflags "-s -w -linkmode external -extldflags -static -X main.version=$(go list -m -f '{{.Version}}' github.com/opencontainers/runc)" \
			-o "$work/runc" github.com/opencontainers/runc
	)
	rm -rf "$runtime"
	mv "$work" "$runtime"
}

# image_recipe tells whether images of the cache are still made as they would be now.
image_recipe() { cat "$root"/deploy/image/*.go "$here/lib/binaries.sh" | sha256sum | cut -c1-12; }

# build_images writes the archives that every node imports.
build_images() {
	local images="$state/images" work arch l backend
	arch="$(go env GOARCH)"
	work="$state/images.new"
	rm -rf "$work"
	mkdir -p "$work" "$images"
	(cd "$root/deploy/image" && go build -o "$work/image" .)
	for l in pause echo; do
		(cd "$root" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/$l" "./test/cluster/$l")
		"$work/image" -o "$images/$l.tar" -t "svcproxy.test/$l:dev" -arch "$arch" -add "$work/$l:/$l" -entrypoint "/$l" >>"$state/log/images.log" 2>&1
	done
	ARCHS="$arch" TAG="$helper_image" "$root/hack/image.sh" "$images/nodehelper.tar" >>"$state/log/images.log" 2>&1
	for backend in nft legacy; do
		ln -sf "$(build_proxy_image "$KUBERNETES_VERSION" "$backend")" "$images/kube-proxy-$backend.tar"
	done
	rm -rf "$work"
}

# build_proxy_image VERSION BACKEND prints the archive of a kube-proxy, with the iptables of a backend. Archives are large, and change with
# Kubernetes only: they stay in the cache.
build_proxy_image() {
	local version="$1" backend="$2" dir archive links="" l work tools=iptables,nftables,netbase keep
	dir="$(proxy_dir "$version")"
	archive="$dir/kube-proxy-$backend-$(image_recipe).tar"
	echo "$archive"
	[[ ! -e "$archive" ]] || return 0
	keep='/usr/sbin/xtables-*-multi,{lib}/xtables/*.so,/usr/sbin/nft,/etc/protocols'
	for l in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
		links+=",link=xtables-$backend-multi:/usr/sbin/$l"
	done
	work="$(mktemp -d)"
	(cd "$root/deploy/image" && go build -o "$work/image" .)
	"$work/image" -o "$work/image.tar" -t "$(proxy_image "$version" "$backend")" -arch "$(go env GOARCH)" -packages "$tools" -keep "$keep" \
		-add "$dir/kube-proxy:/usr/bin/kube-proxy$links" -entrypoint /usr/bin/kube-proxy >>"$state/log/images.log" 2>&1
	mv "$work/image.tar" "$archive"
	rm -rf "$work"
}

# load_proxy NODE VERSION BACKEND has the image of a kube-proxy on a node.
load_proxy() {
	local image
	image="$(proxy_image "$2" "$3")"
	if ! in_node "$1" ctr -n k8s.io images list -q | grep -qx "$image"; then
		in_node "$1" ctr -n k8s.io images import --all-platforms=false "$(
			flock 9
			build_proxy_image "$2" "$3"
		)" >/dev/null
	fi 9>"$cache/kube-proxy.lock"
}
