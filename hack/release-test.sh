#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes a release as .github/workflows/release.yaml does (hack/release-assets.sh), for this system alone and without signing
# or publishing it, checks the result, and installs it as a person does, through krew. Needs kubectl and jq on the PATH. With
# "twice" it makes another in another folder, and compares every byte of what is to be the same.
set -euo pipefail

cd "$(dirname "$0")/.."

version=v9.9.9
system="$(go env GOOS)_$(go env GOARCH)"
archive="kubectl-svcproxy_${version}_$system.tar.gz"

fail() {
	echo "release-test: $*" >&2
	exit 1
}

goreleaser="$(hack/tool.sh goreleaser)"
krew="$(hack/tool.sh krew)"
validate="$(hack/tool.sh validate-krew-manifest)"
for program in kubectl jq; do
	command -v "$program" >/dev/null || fail "there is no $program on the PATH"
done

"$goreleaser" check --quiet || fail ".goreleaser.yaml is not valid"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# clone DIR copies the tree as it is, with what is not committed, into a repository with a release's tag. Its commit is
# the same in every copy: goreleaser writes it, and its time, into what it makes.
clone() {
	mkdir -p "$1"
	if git rev-parse --git-dir >/dev/null 2>&1; then
		git ls-files -z --cached --others --exclude-standard --deduplicate | xargs -0 -I{} sh -c 'test ! -e "$1" || printf "%s\0" "$1"' sh {}
	else
		find . \( -path ./bin -o -path ./dist -o -path ./.git \) -prune -o -type f -print0
	fi | tar --null -T - -cf - | tar -xf - -C "$1"
	(
		cd "$1"
		export GIT_AUTHOR_DATE='2026-01-02T03:04:05Z' GIT_COMMITTER_DATE='2026-01-02T03:04:05Z' GIT_CONFIG_GLOBAL=/dev/null
		git init -q -b main
		git add -A
		git -c user.name=test -c user.email=test@svcproxy.test commit -q -m 'A release'
		git tag "$version"
		git remote add origin https://github.com/svcproxy/kubectl-svcproxy
		# One system, to be quick. The folder's name is not the same either, as no path may show.
		sed -i -e "s/^    goos: \[linux, darwin, windows\]$/    goos: [${system%_*}]/" -e "s/^    goarch: \[amd64, arm64\]$/    goarch: [${system#*_}]/" .goreleaser.yaml
		(($(git diff --numstat | cut -f1) == 2)) || fail ".goreleaser.yaml does not list its systems as this test expects"
		git update-index --assume-unchanged .goreleaser.yaml
	)
}

# The image has the helper and none of Debian's programs: apt is not everywhere. Its builder, digest and SBOMs are the
# release's. syft reads images for several architectures from registries alone, so that each gets an index of its own.
(cd deploy/image && go build -o "$work/image" .)
for arch in amd64 arm64; do
	CGO_ENABLED=0 GOOS=linux GOARCH="$arch" go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/helper_$arch" ./cmd/svcproxy-nodehelper
done
reference="$("$work/image" -o "$work/image.tar" -t "ghcr.io/svcproxy/nodehelper:$version" -arch amd64,arm64 \
	-add "$work/helper_{arch}:/svcproxy-nodehelper" -entrypoint /svcproxy-nodehelper 2>"$work/image.log")" || {
	cat "$work/image.log" >&2
	fail "the image is not built"
}
digest="${reference##*@}"
for arch in amd64 arm64; do
	mkdir -p "$work/layout/$arch"
	tar -xf "$work/image.tar" -C "$work/layout/$arch"
	jq --arg arch "$arch" '.manifests |= map(select(.platform.architecture == $arch))' \
		"$work/layout/$arch/blobs/sha256/${digest#*:}" >"$work/layout/$arch/index.json"
done

# The krew manifest lists all systems; the others' archives are not built here, and have a checksum of nothing.
others=()
for other in linux_amd64.tar.gz linux_arm64.tar.gz darwin_amd64.tar.gz darwin_arm64.tar.gz windows_amd64.zip windows_arm64.zip; do
	if [[ "kubectl-svcproxy_${version}_$other" != "$archive" ]]; then
		others+=("$(sha256sum </dev/null | cut -d' ' -f1)  kubectl-svcproxy_${version}_$other")
	fi
done
printf '%s\n' "${others[@]}" >"$work/others.txt"

# release DIR makes the release of a clone in DIR/dist/release.
release() {
	(cd "$1" && IMAGE_SOURCE="oci-dir:$work/layout/{arch}" OTHER_SUMS="$work/others.txt" hack/release-assets.sh "$version" "$reference" "$work/image.tar" dist/release) >"$1.log" 2>&1 || {
		cat "$1.log" >&2
		fail "there is no release"
	}
}

clone "$work/one"
release "$work/one"
one="$work/one/dist/release"

# What is signed is checksums.txt, and it has the sum of every file that is released.
mapfile -t listed < <(awk '{ print $2 }' "$one/checksums.txt" | sort)
expected=(
	"$archive" "$archive.sbom.json" daemonset.yaml deploy.yaml "nodehelper_${version}_linux_amd64.sbom.json"
	"nodehelper_${version}_linux_arm64.sbom.json" "nodehelper_$version.tar" svcproxy.yaml watch-monitoring.yaml watch.yaml
)
diff <(printf '%s\n' "${expected[@]}" | sort) <(printf '%s\n' "${listed[@]}") >&2 || fail "checksums.txt does not list what a release has"
diff <(printf '%s\n' "${listed[@]}" checksums.txt | sort) <(find "$one" -mindepth 1 -printf '%P\n' | sort) >&2 || fail "a file is released without being signed"
(cd "$one" && sha256sum --quiet --strict --check checksums.txt) || fail "checksums.txt is wrong"
cmp "$work/image.tar" "$one/nodehelper_$version.tar" || fail "the image that is released as a file is not the one that was built"
# An archive of another image, or of none, makes no release.
for wrong in "$one/$archive" "$work/none.tar"; do
	if (cd "$work/one" && hack/release-assets.sh "$version" "$reference" "$wrong" dist/other) >"$work/wrong.log" 2>&1 || ! grep -q 'is not the archive of an image' "$work/wrong.log"; then
		cat "$work/wrong.log" >&2
		fail "$wrong is taken for the image"
	fi
done
if (cd "$work/one" && hack/release-assets.sh "$version" "${reference%@*}@sha256:$(printf 0%.0s {1..64})" "$work/image.tar" dist/other) >"$work/wrong.log" 2>&1 || ! grep -q 'holds the image' "$work/wrong.log"; then
	cat "$work/wrong.log" >&2
	fail "the archive of another image is taken for this one's"
fi
for sbom in "$archive" "nodehelper_${version}_linux_amd64" "nodehelper_${version}_linux_arm64"; do
	jq -e '[.packages[].name] | index("k8s.io/klog/v2") or index("golang.org/x/sys")' "$one/$sbom.sbom.json" >/dev/null ||
		fail "$sbom.sbom.json does not name the modules in it"
done
echo "signed are the checksums of: ${listed[*]}"

if [[ "${1:-}" == twice ]]; then
	clone "$work/elsewhere/two"
	release "$work/elsewhere/two"
	two="$work/elsewhere/two/dist/release"
	# An SBOM says when it was written, and has a number of its own.
	for file in "$archive" daemonset.yaml deploy.yaml svcproxy.yaml watch-monitoring.yaml watch.yaml; do
		cmp "$one/$file" "$two/$file" || fail "$file differs between two builds of one commit"
	done
	echo "the same bytes twice: $(grep -vF .sbom.json "$one/checksums.txt")"
fi

# What is in the archive.
mapfile -t got < <(tar -tf "$one/$archive" | sort)
for want in kubectl-svcproxy kubectl_complete-svcproxy LICENSE THIRD_PARTY_LICENSES.txt README.md CHANGELOG.md docs/findings.md docs/commands/kubectl_svcproxy.md; do
	[[ " ${got[*]} " == *" $want "* ]] || fail "$want is not in the archive: ${got[*]}"
done
mkdir "$work/unpacked"
tar -xf "$one/$archive" -C "$work/unpacked"
commit="$(git -C "$work/one" rev-parse HEAD)"
says="$("$work/unpacked/kubectl-svcproxy" version -o json)"
for want in "\"version\": \"$version\"" "\"commit\": \"$commit\"" "\"helperImage\": \"ghcr.io/svcproxy/nodehelper:$version@$digest\""; do
	[[ "$says" == *"$want"* ]] || fail "the binary does not say $want: $says"
done
if grep -qaF -e "$work" -e "$(go env GOMODCACHE)" "$work/unpacked/kubectl-svcproxy"; then
	fail "the binary holds a path of the machine that built it"
fi

"$validate" -manifest "$one/svcproxy.yaml" -skip-install >"$work/validate.log" 2>&1 || {
	cat "$work/validate.log" >&2
	fail "krew does not take the manifest"
}

# What is in the tree has the form of a manifest, and is not taken for one of a release.
"$validate" -manifest krew/svcproxy.yaml -skip-install >"$work/validate.log" 2>&1 || {
	cat "$work/validate.log" >&2
	fail "krew does not take krew/svcproxy.yaml"
}

# As a person installs and runs it.
export KREW_ROOT="$work/krew" KREW_NO_UPGRADE_CHECK=1 HOME="$work/home"
mkdir "$HOME" "$work/tools"
ln -s "$krew" "$work/tools/kubectl-krew"
export PATH="$KREW_ROOT/bin:$work/tools:$PATH" NO_COLOR=1 KUBECONFIG="$HOME/none"
if kubectl krew install --manifest=krew/svcproxy.yaml --archive="$one/$archive" </dev/null >"$work/none.log" 2>&1 || ! grep -q 'checksum does not match' "$work/none.log"; then
	cat "$work/none.log" >&2
	fail "krew/svcproxy.yaml is taken for the manifest of a release"
fi
kubectl krew install --manifest="$one/svcproxy.yaml" --archive="$one/$archive" </dev/null >"$work/krew.log" 2>&1 || {
	cat "$work/krew.log" >&2
	fail "krew does not install it"
}
status=0
kubectl svcproxy trace web -n shop --snapshot examples/broken-node >"$work/out" || status=$?
if ((status != 1)) || ! grep -q '^MISMATCH: 2 of 2 paths of shop/web on worker-1 are wrong' "$work/out"; then
	cat "$work/out" >&2
	fail "the installed plugin ended with $status"
fi
# The manifest's own words on completion.
eval "$(sed -n '/^      cp /,/[^\\]$/p' "$one/svcproxy.yaml")"
offered="$(kubectl __complete svcproxy trace -n shop --snapshot examples/broken-node web: 2>/dev/null)"
[[ "$offered" == *"web:80"*"web:http"*":4"* ]] || fail "the installed completion offers: $offered"
hack/release-notes.sh "$version" >/dev/null 2>&1 && fail "there are notes of a version that there never was"
[[ "$(hack/release-notes.sh Unreleased)" == *'### Added'* ]] || fail "there are no notes of what is unreleased"
echo "kubectl krew install, kubectl svcproxy trace and TAB work"
