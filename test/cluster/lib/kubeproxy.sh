# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# kube-proxy as kubeadm deploys it: a ConfigMap and a DaemonSet in kube-system. There is one DaemonSet for each mode, and a label says
# which node is whose. Sourced.

modes=(iptables iptables-legacy nftables)
mode_label=svcproxy.test/kube-proxy

deploy_kube_proxy() {
	local mode
	kubectl apply -f - >/dev/null <<-EOF
		apiVersion: v1
		kind: ServiceAccount
		metadata: {name: kube-proxy, namespace: kube-system}
		---
		apiVersion: rbac.authorization.k8s.io/v1
		kind: ClusterRoleBinding
		metadata: {name: kubeadm:node-proxier}
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:node-proxier}
		subjects: [{kind: ServiceAccount, name: kube-proxy, namespace: kube-system}]
	EOF
	for mode in "${modes[@]}"; do
		kube_proxy_manifest "$mode" | kubectl apply -f - >/dev/null
	done
}

# In a network namespace nf_conntrack_max cannot be written, hence maxPerCore 0.
kube_proxy_manifest() {
	local name="$1" mode="${1%-legacy}" backend=nft map
	[[ "$name" != iptables-legacy ]] || backend=legacy
	map="kube-proxy-$name"
	[[ "$name" != iptables ]] || map=kube-proxy # the one that tools look for
	cat <<-EOF
		apiVersion: v1
		kind: ConfigMap
		metadata: {name: $map, namespace: kube-system, labels: {app: kube-proxy}}
		data:
		  config.conf: |
		    apiVersion: kubeproxy.config.k8s.io/v1alpha1
		    kind: KubeProxyConfiguration
		    mode: $mode
		    clusterCIDR: $pods
		    clientConnection: {kubeconfig: /var/lib/kube-proxy/kubeconfig.conf}
		    conntrack: {maxPerCore: 0, min: 0}
		    oomScoreAdj: 0
		  kubeconfig.conf: |
		    apiVersion: v1
		    kind: Config
		    clusters: [{name: default, cluster: {certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt, server: "https://$api4:6443"}}]
		    contexts: [{name: default, context: {cluster: default, user: default}}]
		    current-context: default
		    users: [{name: default, user: {tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}}]
		---
		apiVersion: apps/v1
		kind: DaemonSet
		metadata: {name: kube-proxy-$name, namespace: kube-system, labels: {k8s-app: kube-proxy}}
		spec:
		  selector: {matchLabels: {k8s-app: kube-proxy, mode: $name}}
		  template:
		    metadata: {labels: {k8s-app: kube-proxy, mode: $name}}
		    spec:
		      nodeSelector: {$mode_label: $name}
		      serviceAccountName: kube-proxy
		      hostNetwork: true
		      priorityClassName: system-node-critical
		      tolerations: [{operator: Exists}]
		      terminationGracePeriodSeconds: 2
		      containers:
		      - name: kube-proxy
		        image: $proxy_image-$backend
		        imagePullPolicy: Never
		        command: [/usr/bin/kube-proxy, --config=/var/lib/kube-proxy/config.conf, --hostname-override=\$(NODE_NAME), -v=2]
		        env: [{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
		        securityContext: {privileged: true}
		        volumeMounts: [{name: kube-proxy, mountPath: /var/lib/kube-proxy}, {name: lock, mountPath: /run/xtables.lock}]
		      volumes: [{name: kube-proxy, configMap: {name: $map}}, {name: lock, hostPath: {path: /run/xtables.lock, type: FileOrCreate}}]
	EOF
}

# set_proxy NODE MODE|stop has kube-proxy run in a mode, or not at all, and waits until it does. What the mode before has left stays.
set_proxy() {
	local node="$1" mode="$2"
	number_of "$node" >/dev/null
	if [[ "$mode" == stop ]]; then
		kubectl label node "$node" "$mode_label-" >/dev/null
		until_true 60 "kube-proxy is gone from $node" no_proxy "$node"
		return
	fi
	[[ " ${modes[*]} " == *" $mode "* ]] || die "$mode is no mode: ${modes[*]} and stop are"
	kubectl label node "$node" --overwrite "$mode_label=$mode" >/dev/null
	until_true 90 "kube-proxy has synced in $mode mode on $node" proxy_synced "$node" "${mode%-legacy}"
}

no_proxy() {
	[[ -z "$(kubectl -n kube-system get pods -l k8s-app=kube-proxy --field-selector "spec.nodeName=$1" -o name)" ]]
}

proxy_synced() {
	[[ "$(in_node "$1" curl -sf http://127.0.0.1:10249/proxyMode)" == "$2" ]] &&
		in_node "$1" curl -sf http://127.0.0.1:10249/metrics | grep -q '^kubeproxy_sync_proxy_rules_last_timestamp_seconds.* [1-9]'
}
