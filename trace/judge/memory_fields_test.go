// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"reflect"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Every field of what paths are judged by is one of which somebody has decided how it is compared with the next
// reading. A new field is added here, and to SameBeside, shared or sharedNode, unless no path that is a match goes by
// it.
func TestEveryFieldIsCompared(t *testing.T) {
	for _, x := range []struct {
		of   reflect.Type
		want map[string]string
	}{
		{reflect.TypeFor[nodestate.State](), map[string]string{
			"Name": "compared", "Rules": "by its prints", "Have": "compared", "Backends": "compared", "NotAll": "compared",
			"Host": "compared, but for time", "GroupPrograms": "by its file", "Sets": "by its file", "Virtual": "compared",
			"Connections": "nothing is taken over with it", "Sockets": "what lasts of them", "SocketsRead": "compared",
			"InUse":   "of pods alone, which no agent reads",
			"Journal": "by its file", "Probes": "nothing is taken over with it", "Tracked": "nothing is taken over with it",
			"Proxy": "compared, but for its progress", "Config": "compared", "Flags": "compared", "files": "compared",
			"reasons": "compared", "readings": "compared", "failed": "compared", "asTheyWere": "compared",
		}},
		{reflect.TypeFor[node](), map[string]string{
			"State": "see there", "cluster": "see there", "object": "one of the Nodes", "net": "Host, with the Node's addresses",
			"config": "compared", "stored": "compared", "exp": "each path of it", "mode": "compared", "shown": "compared",
			"survey": "compared; servers are those of Virtual", "values": "compared; with open ones nothing is taken over",
			"reported": "compared", "refused": "of the node alone", "sources": "each origin of it",
			"distinct": "its chains; a path that comes there is judged", "podCIDRs": "compared",
			"ownPods": "whether it has the origin and each endpoint",
			"peers":   "nothing is taken over with it", "done": "of the judgement alone", "unread": "compared",
		}},
		{reflect.TypeFor[Cluster](), map[string]string{
			"Cluster": "compared", "index": "each path of it", "services": "of Cluster",
			"endpoints": "each origin of it, and compared where Host goes by it", "onNode": "each origin of it",
			"nodesAt": "of Cluster",
			"podNets": "of Cluster", "pods": "of Cluster", "podsAt": "of Cluster", "podNames": "of Cluster",
			"podsByName": "of Cluster",
			"podSpaces":  "of Cluster", "proxyPods": "of Cluster", "twice": "of the node alone",
			"rangesTwice": "of the node alone", "configs": "of Cluster", "mirrors": "compared",
			"namedPorts": "of Cluster",
		}},
		{reflect.TypeFor[snapshot.Cluster](), map[string]string{
			"Services": "compared", "EndpointSlices": "each path of them", "Nodes": "compared", "Pods": "compared",
			"ConfigMaps": "compared", "Endpoints": "by mirrors", "Missing": "compared", "Unread": "compared",
			"Listed": "no path goes by it", "Left": "compared",
		}},
	} {
		for field := range x.of.Fields() {
			if name := field.Name; x.want[name] == "" {
				t.Errorf("nobody has decided how %s.%s is compared", x.of, name)
			}
		}
		if x.of.NumField() != len(x.want) {
			t.Errorf("%s has %d fields, and %d are known", x.of, x.of.NumField(), len(x.want))
		}
	}
}
