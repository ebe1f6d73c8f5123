# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# kube-proxy as kubeadm deploys it: a ConfigMap and a DaemonSet in kube-system. There is one DaemonSet for each mode and version, and a
# label says which node is whose. Sourced.

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
		kube_proxy_manifest "$mode" "$KUBERNETES_VERSION" | kubectl apply -f - >/dev/null
	done
}

# set_name MODE VERSION is what tells a DaemonSet from the others: its name without kube-proxy-, and the label of its nodes.
set_name() {
	if [[ "$2" == "$KUBERNETES_VERSION" ]]; then
		echo "$1"
	else
		echo "$1-${2//./-}"
	fi
}

backend_of() { if [[ "$1" == iptables-legacy ]]; then echo legacy; else echo nft; fi; }

# In a network namespace nf_conntrack_max cannot be written, hence maxPerCore 0. nftables mode is on by default since 1.31.
kube_proxy_manifest() {
	local mode="${1%-legacy}" name map gates='{}'
	name="$(set_name "$1" "$2")"
	map="kube-proxy-$name"
	[[ "$name" != iptables ]] || map=kube-proxy # the one that tools look for
	if [[ "$mode" == nftables ]] && (($(minor_of "$2") < 31)); then
		gates='{NFTablesProxyMode: true}'
	fi
	cat <<-EOF
		apiVersion: v1
		kind: ConfigMap
		metadata: {name: $map, namespace: kube-system, labels: {app: kube-proxy}}
		data:
		  config.conf: |
		    apiVersion: kubeproxy.config.k8s.io/v1alpha1
		    kind: KubeProxyConfiguration
		    mode: $mode
		    featureGates: $gates
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
		        image: $(proxy_image "$2" "$(backend_of "$1")")
		        imagePullPolicy: Never
		        command: [/usr/bin/kube-proxy, --config=/var/lib/kube-proxy/config.conf, --hostname-override=\$(NODE_NAME), -v=2]
		        env: [{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
		        securityContext: {privileged: true}
		        volumeMounts: [{name: kube-proxy, mountPath: /var/lib/kube-proxy}, {name: lock, mountPath: /run/xtables.lock}]
		      volumes: [{name: kube-proxy, configMap: {name: $map}}, {name: lock, hostPath: {path: /run/xtables.lock, type: FileOrCreate}}]
	EOF
}

# set_proxy NODE MODE[@VERSION]|stop has kube-proxy run in a mode, or not at all, and waits until it does. What the one before has left
# stays.
set_proxy() {
	local node="$1" mode="${2%@*}" version="$KUBERNETES_VERSION"
	number_of "$node" >/dev/null
	if [[ "$mode" == stop ]]; then
		kubectl label node "$node" "$mode_label-" >/dev/null
		until_true 60 "kube-proxy is gone from $node" no_proxy "$node"
		return
	fi
	[[ " ${modes[*]} " == *" $mode "* ]] || die "$mode is no mode: ${modes[*]} and stop are"
	[[ "$2" != *@* ]] || version="${2#*@}"
	if [[ "$version" != "$KUBERNETES_VERSION" ]]; then
		[[ "$mode" != nftables ]] || (($(minor_of "$version") >= 29)) || die "kube-proxy $version has no mode nftables: 1.29 is the first that has"
		build_proxy "$version"
		load_proxy "$node" "$version" "$(backend_of "$mode")"
		kube_proxy_manifest "$mode" "$version" | kubectl apply -f - >/dev/null
	fi
	kubectl label node "$node" --overwrite "$mode_label=$(set_name "$mode" "$version")" >/dev/null
	until_true 90 "kube-proxy $version has synced in $mode mode on $node" proxy_synced "$node" "${mode%-legacy}" "$version"
}

no_proxy() {
	[[ -z "$(kubectl -n kube-system get pods -l k8s-app=kube-proxy --field-selector "spec.nodeName=$1" -o name)" ]]
}

proxy_synced() {
	local metrics
	metrics="$(in_node "$1" curl -sf http://127.0.0.1:10249/metrics)"
	[[ "$(in_node "$1" curl -sf http://127.0.0.1:10249/proxyMode)" == "$2" ]] &&
		grep -q "^kubernetes_build_info{.*git_version=\"$3\"" <<<"$metrics" &&
		grep -q '^kubeproxy_sync_proxy_rules_last_timestamp_seconds.* [1-9]' <<<"$metrics"
}
