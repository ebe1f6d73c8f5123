# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Builds what is not in the cache: Kubernetes and etcd, and containerd with runc and the CNI plugins, from their Go modules. Sourced.

# kubernetes_mod DIR writes a go.mod for KUBERNETES_VERSION: k8s.io/kubernetes names its staging modules as v0.0.0, and replaces them by
# folders that a module does not have; the published ones have the same version with a 0 in front.
kubernetes_mod() {
	local dir="$1" source
	go mod download "k8s.io/kubernetes@$KUBERNETES_VERSION"
	source="$(go env GOMODCACHE)/k8s.io/kubernetes@$KUBERNETES_VERSION/go.mod"
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
		echo "replace ("
		awk -v v="v0.${KUBERNETES_VERSION#v1.}" '/^replace \(/ { r = 1; next } r && /^\)/ { r = 0 } r && $2 == "=>" { print "\t" $1, "=>", $1, v }' "$source"
		echo ")"
	} >"$dir/go.mod"
	(cd "$dir" && go mod tidy)
}

build_kubernetes() {
	local component missing=() mod="$here/k8s" ld="-s -w" p version="${KUBERNETES_VERSION#v}"
	for component in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl; do
		[[ -x "$bin/$component" ]] || missing+=("$component")
	done
	((${#missing[@]} > 0)) || return 0
	if ! grep -q "k8s.io/kubernetes $KUBERNETES_VERSION " "$mod/go.mod"; then
		mod="$cache/mod-kubernetes-$KUBERNETES_VERSION"
		[[ -e "$mod/go.sum" ]] || kubernetes_mod "$mod"
	fi
	for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		ld+=" -X $p.gitVersion=$KUBERNETES_VERSION -X $p.gitMajor=1 -X $p.gitMinor=$(cut -d. -f2 <<<"$version")"
		ld+=" -X $p.gitTreeState=clean -X $p.gitCommit=unknown -X $p.buildDate=2026-01-01T00:00:00Z"
	done
	mkdir -p "$bin"
	for component in "${missing[@]}"; do
		p="k8s.io/kubernetes/cmd/$component"
		[[ "$component" != etcd ]] || p=go.etcd.io/etcd/server/v3
		say "building $component $KUBERNETES_VERSION"
		(cd "$mod" && CGO_ENABLED=0 go build -trimpath -ldflags "$ld" -o "$bin/.$component" "$p")
		mv "$bin/.$component" "$bin/$component"
	done
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

# build_images writes the archives that every node imports.
build_images() {
	local images="$state/images" work arch tools=iptables,nftables,netbase keep backend links l archive recipe
	arch="$(go env GOARCH)"
	recipe="$(cat "$root"/deploy/image/*.go "$here/lib/binaries.sh" | sha256sum | cut -c1-12)"
	work="$state/images.new"
	rm -rf "$work"
	mkdir -p "$work" "$images"
	(cd "$root/deploy/image" && go build -o "$work/image" .)
	for l in pause echo; do
		(cd "$root" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/$l" "./test/cluster/$l")
		"$work/image" -o "$images/$l.tar" -t "svcproxy.test/$l:dev" -arch "$arch" -add "$work/$l:/$l" -entrypoint "/$l" >>"$state/log/images.log" 2>&1
	done
	ARCHS="$arch" TAG="$helper_image" "$root/hack/image.sh" "$images/nodehelper.tar" >>"$state/log/images.log" 2>&1
	keep='/usr/sbin/xtables-*-multi,{lib}/xtables/*.so,/usr/sbin/nft,/etc/protocols'
	# These are large, and change with Kubernetes only: they stay in the cache.
	for backend in nft legacy; do
		archive="$bin/kube-proxy-$backend-$recipe.tar"
		if [[ -e "$archive" ]]; then
			ln -sf "$archive" "$images/kube-proxy-$backend.tar"
			continue
		fi
		links=""
		for l in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
			links+=",link=xtables-$backend-multi:/usr/sbin/$l"
		done
		"$work/image" -o "$archive" -t "$proxy_image-$backend" -arch "$arch" -packages "$tools" -keep "$keep" \
			-add "$bin/kube-proxy:/usr/bin/kube-proxy$links" -entrypoint /usr/bin/kube-proxy >>"$state/log/images.log" 2>&1
		ln -sf "$archive" "$images/kube-proxy-$backend.tar"
	done
	rm -rf "$work"
}
