// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
)

// Files of a pod's network namespace that a node does not have.
const (
	// ResolvConfFile is the /etc/resolv.conf of the pod's containers.
	ResolvConfFile = "resolv.conf"
	// PacketFile is /proc/net/packet: sockets that take frames before IP does, as those of a user space's IP stack.
	PacketFile = "packet.txt"
	// SocketCountsFile is /proc/net/sockstat and /proc/net/sockstat6: how many sockets there are.
	SocketCountsFile = "sockstat.txt"
)

// PodFiles are the names of the contract's files of one pod's network namespace, below nodes/NODE/pods/NAMESPACE_NAME/.
var PodFiles = []string{
	IPTablesFile, IPTablesNFTFile, IPTablesLegacyFile, IP6TablesFile, IP6TablesNFTFile, IP6TablesLegacyFile, NFTFile,
	IPSetFile, AddrFile, LinkFile, RouteFile, Route6File, RuleFile, Rule6File, NeighbourFile, SysctlFile, ProgramsFile,
	XfrmFile, NFTHooksFile, ListenFile, StoppedFile, TimeFile, PacketFile, SocketCountsFile,
	ResolvConfFile, UnreadFile,
}

// podsFolder is the folder of a node that holds its pods.
const podsFolder = "pods"

// podFolder is what a pod's folder may be called: neither part can have an underscore (RFC 1123).
var podFolder = lazyregexp.New(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?_[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

// maxFolder is how long the name of a folder may be on the file systems of today, in bytes.
const maxFolder = 255

// folderOfPod returns the folder of a pod, by its namespace/name, with a slash behind it.
func folderOfPod(name string) string {
	return podsFolder + "/" + strings.Replace(name, "/", "_", 1) + "/"
}

// podFileOf tells whether f is below pods/NAMESPACE_NAME/ of a node's folder, and returns its name there.
func podFileOf(f string) (file string, ok bool) {
	parts := strings.Split(f, "/")
	const depth = 3 // pods, the pod, the file
	if len(parts) != depth || parts[0] != podsFolder || !podFolder().MatchString(parts[1]) {
		return "", false
	}
	return parts[2], slices.Contains(PodFiles, parts[2])
}

// podRoot tells whether f is root/nodes/NODE/pods/NAMESPACE_NAME/FILE of the format, and returns "root/".
func podRoot(f string) (root string, ok bool) {
	dir, _ := path.Split(f)
	dir = strings.TrimSuffix(dir, "/")
	pods := path.Dir(dir)
	nodes := path.Dir(path.Dir(pods))
	if path.Base(nodes) != "nodes" || path.Dir(pods) == nodes {
		return "", false
	}
	if _, ok := podFileOf(strings.TrimPrefix(f, path.Dir(pods)+"/")); !ok {
		return "", false
	}
	return strings.TrimSuffix(nodes, "nodes"), true
}

// holdsPods tells whether a directory is nodes/NODE/pods.
func holdsPods(dir string) bool {
	return path.Base(dir) == podsFolder && path.Base(path.Dir(path.Dir(dir))) == "nodes"
}

// inNode returns the name that a file, nodes/NODE/…, has within the node's folder.
func inNode(file string) string {
	rest := strings.TrimPrefix(file, "nodes/")
	_, name, _ := strings.Cut(rest, "/")
	return name
}

// Pods returns the pods whose network namespaces were collected, namespace/name, sorted.
func (n *Node) Pods() []string {
	names := map[string]bool{}
	for f := range n.files {
		if _, ok := podFileOf(f); ok {
			names[strings.Replace(strings.Split(f, "/")[1], "_", "/", 1)] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Pod returns the files of a pod's network namespace, by its namespace/name, in the form of a node's; nil where it was
// not collected.
func (n *Node) Pod(name string) *Node {
	out := newNode(n.Name)
	folder := folderOfPod(name)
	for f, o := range n.files {
		if file, ok := podFileOf(f); ok && strings.HasPrefix(f, folder) {
			out.files[file] = o
		}
	}
	if len(out.files) == 0 {
		return nil
	}
	return out
}

// WithPod returns the node with the files of a pod's network namespace that were received. Files that are none of
// [PodFiles] are left out.
func (n *Node) WithPod(name string, files map[string]Packed) (*Node, error) {
	folder := folderOfPod(name)
	if base := path.Base(folder); !podFolder().MatchString(base) || len(base) > maxFolder {
		return nil, fmt.Errorf("the pod %.300q cannot have a folder in a snapshot", name)
	}
	out := newNode(n.Name)
	maps.Copy(out.files, n.files)
	for f, data := range files {
		if slices.Contains(PodFiles, f) {
			out.files[folder+f] = data.open(folder + f)
		}
	}
	return out, nil
}
