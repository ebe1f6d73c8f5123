#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes every file of a release but the signature: hack/release-assets.sh VERSION REFERENCE IMAGE DIR. REFERENCE is the helper's
# image of this version, NAME:TAG@sha256:…, and IMAGE its archive (hack/image.sh prints the one, and writes the other). Needs
# kubectl and jq on the PATH, and a tree whose tag is VERSION. hack/release-test.sh runs it without publishing anything.
#
#   IMAGE_SOURCE=registry:…   where syft reads the image; {arch} in it is the architecture
#   OTHER_SUMS=FILE           checksums of archives that .goreleaser.yaml does not build here, for the krew manifest of a test
#
# DIR gets the archives of all systems, an SBOM of each and of the image for each architecture, the image as a file, the manifests that
# kubectl apply takes, the krew manifest, and checksums.txt over all of them, which is what is signed.
set -euo pipefail

version="${1:?usage: hack/release-assets.sh VERSION REFERENCE IMAGE DIR}" reference="${2:?}" image="$(realpath -m "${3:?}")" dir="$(realpath -m "${4:?}")"
image_source="${IMAGE_SOURCE:-registry:$reference}"
cd "$(dirname "$0")/.."

fail() {
	echo "release-assets: $*" >&2
	exit 1
}

[[ "$reference" =~ ^[^@]+:"$version"@sha256:[0-9a-f]{64}$ ]] || fail "\"$reference\" is not the image of $version: give NAME:$version@sha256:…"
held="$(tar -xOf "$image" index.json | jq -r '.manifests[].digest')" || fail "$image is not the archive of an image"
[[ "$held" == "${reference##*@}" ]] || fail "$image holds the image $held, and not ${reference##*@}"
[[ ! -e "$dir" ]] || fail "$dir exists: give a folder that does not, so that nothing else is released"

goreleaser="$(hack/tool.sh goreleaser)"
syft="$(hack/tool.sh syft)"
tools="$(mktemp -d)"
trap 'rm -rf "$tools"' EXIT
ln -s "$syft" "$tools/syft" # .goreleaser.yaml calls it by its name
export PATH="$tools:$PATH" SYFT_CHECK_FOR_APP_UPDATE=false

HELPER_DIGEST="${reference##*@}" "$goreleaser" release --skip=publish --clean
mkdir -p "$dir"
find dist -maxdepth 1 \( -name '*.tar.gz' -o -name '*.zip' -o -name '*.sbom.json' \) -exec cp -t "$dir" {} +

cp "$image" "$dir/nodehelper_$version.tar" # for clusters that cannot pull it (docs/air-gap.md)

# What kubectl apply takes names this image and no other.
kubectl kustomize deploy | sed "s|ghcr.io/svcproxy/nodehelper:dev$|$reference|" >"$dir/deploy.yaml"
kubectl kustomize deploy/daemonset | sed "s|ghcr.io/svcproxy/nodehelper:dev$|$reference|" >"$dir/daemonset.yaml"
kubectl kustomize deploy/watch | sed "s|ghcr.io/svcproxy/nodehelper:dev$|$reference|" >"$dir/watch.yaml"
kubectl kustomize deploy/watch/monitoring >"$dir/watch-monitoring.yaml"
for line in "deploy.yaml:  image.release: $reference" "daemonset.yaml:        image: $reference" "watch.yaml:        image: $reference"; do
	grep -qxF -- "${line#*:}" "$dir/${line%%:*}" || fail "${line%%:*} does not say \"${line#*:}\""
done
if grep -F nodehelper:dev "$dir"/*.yaml; then
	fail "a manifest names the image of no release"
fi

for arch in amd64 arm64; do
	"$syft" scan --quiet --platform "linux/$arch" "${image_source//\{arch\}/$arch}" -o "spdx-json=$dir/nodehelper_${version}_linux_$arch.sbom.json"
done

# The manifest holds the archives' sums, and its own is among the sums of the release.
(cd "$dir" && find . -name 'kubectl-svcproxy_*' ! -name '*.sbom.json' -printf '%P\0' | sort -z | xargs -0 sha256sum) >"$tools/archives.txt"
cat "$tools/archives.txt" "${OTHER_SUMS:-/dev/null}" >"$tools/sums.txt"
hack/krew-manifest.sh "$version" "$tools/sums.txt" >"$dir/svcproxy.yaml"

for sbom in "$dir"/*.sbom.json; do
	jq -e '.spdxVersion and (.packages | length > 1)' "$sbom" >/dev/null || fail "$sbom is not an SBOM with packages"
done
while read -r _ archive; do
	[[ -s "$dir/$archive.sbom.json" ]] || fail "there is no SBOM of $archive"
done <"$tools/archives.txt"

(cd "$dir" && find . -type f -printf '%P\0' | sort -z | xargs -0 sha256sum) >"$tools/checksums.txt"
mv "$tools/checksums.txt" "$dir/checksums.txt"
