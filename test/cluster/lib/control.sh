# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The control plane, on a bridge of its own: nothing of it can be reached from outside this machine. Sourced.

control_plane=(kube-scheduler kube-controller-manager kube-apiserver etcd) # in the order in which they end

# certificate NAME SUBJECT EXTENSION… signs a key of its own by the cluster's CA.
certificate() {
	local name="$1" subject="$2" pki="$state/pki"
	shift 2
	[[ ! -e "$pki/$name.crt" ]] || return 0
	openssl ecparam -name prime256v1 -genkey -noout -out "$pki/$name.key"
	openssl req -new -key "$pki/$name.key" -subj "$subject" -out "$pki/$name.csr"
	printf '%s\n' keyUsage=digitalSignature "$@" >"$pki/$name.ext"
	# A serial number of its own: openssl's file of them is not made for two that sign at once.
	openssl x509 -req -in "$pki/$name.csr" -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -set_serial "0x$(openssl rand -hex 16)" -days 3650 \
		-out "$pki/$name.crt" -extfile "$pki/$name.ext" 2>>"$state/log/openssl.log" || die "cannot sign $name: $(cat "$state/log/openssl.log")"
}

# kubeconfig FILE USER [GROUP] makes a kubeconfig of anybody. Others may read the file meanwhile: it is there as a whole,
# or as it was before.
kubeconfig() {
	local file="$1" user="$2" group="${3:-}" name
	name="$(basename "$file" .kubeconfig)"
	certificate "$name" "${group:+/O=$group}/CN=$user" extendedKeyUsage=clientAuth
	cat >"$file.new" <<-EOF
		apiVersion: v1
		kind: Config
		clusters:
		- name: svcproxy
		  cluster: {server: "https://$api4:6443", certificate-authority-data: $(base64 -w0 "$state/pki/ca.crt")}
		users:
		- name: "$user"
		  user: {client-certificate-data: $(base64 -w0 "$state/pki/$name.crt"), client-key-data: $(base64 -w0 "$state/pki/$name.key")}
		contexts:
		- name: svcproxy
		  context: {cluster: svcproxy, user: "$user"}
		current-context: svcproxy
	EOF
	mv "$file.new" "$file"
}

make_pki() {
	local pki="$state/pki" c
	if [[ ! -e "$pki/sa.pub" ]]; then
		openssl ecparam -name prime256v1 -genkey -noout -out "$pki/ca.key"
		openssl req -x509 -new -key "$pki/ca.key" -subj /CN=svcproxy-cluster -days 3650 -out "$pki/ca.crt" \
			-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
		openssl genrsa -out "$pki/sa.key" 2048 2>/dev/null
		openssl rsa -in "$pki/sa.key" -pubout -out "$pki/sa.pub" 2>/dev/null
	fi
	certificate apiserver /CN=kube-apiserver extendedKeyUsage=serverAuth \
		"subjectAltName=IP:$api4,IP:$api6,IP:127.0.0.1,IP:10.97.0.1,IP:fd00:10:97::1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
	kubeconfig "$KUBECONFIG" svcproxy-admin system:masters
	kubeconfig "$state/apiserver-kubelet-client.kubeconfig" kube-apiserver-kubelet-client system:masters
	for c in kube-controller-manager kube-scheduler; do
		kubeconfig "$state/$c.kubeconfig" "system:$c"
	done
}

start_control_plane() {
	local pki="$state/pki"
	if ! ip link show "$bridge" >/dev/null 2>&1; then
		ip link add "$bridge" type bridge
		ip addr add "$api4/24" dev "$bridge"
		ip -6 addr add "$api6/64" dev "$bridge" nodad
		ip link set "$bridge" up
	fi
	make_pki
	# What is written need not survive a power cut.
	running etcd || start etcd etcd --name svcproxy --data-dir "$state/etcd" --unsafe-no-fsync --logger zap --log-level warn \
		--listen-client-urls "http://127.0.0.1:23791" --advertise-client-urls "http://127.0.0.1:23791" \
		--listen-peer-urls "http://127.0.0.1:23801" --initial-advertise-peer-urls "http://127.0.0.1:23801" --initial-cluster "svcproxy=http://127.0.0.1:23801"
	running kube-apiserver || start kube-apiserver kube-apiserver --etcd-servers=http://127.0.0.1:23791 \
		--bind-address="$api4" --secure-port=6443 --advertise-address="$api4" --service-cluster-ip-range="$services" \
		--authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true \
		--client-ca-file="$pki/ca.crt" --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
		--service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
		--kubelet-client-certificate="$pki/apiserver-kubelet-client.crt" --kubelet-client-key="$pki/apiserver-kubelet-client.key" \
		--kubelet-preferred-address-types=InternalIP
	until_true 60 "the API server is ready" api_is_ready
	# At its default of 20 requests a second the accounts of its controllers alone take 5 s.
	running kube-controller-manager || start kube-controller-manager kube-controller-manager --kubeconfig="$state/kube-controller-manager.kubeconfig" \
		--bind-address=127.0.0.1 --secure-port=10297 --leader-elect=false --kube-api-qps=500 --kube-api-burst=1000 --use-service-account-credentials=true \
		--service-account-private-key-file="$pki/sa.key" --root-ca-file="$pki/ca.crt" --allocate-node-cidrs=true --cluster-cidr="$pods" \
		--service-cluster-ip-range="$services"
	running kube-scheduler || start kube-scheduler kube-scheduler --kubeconfig="$state/kube-scheduler.kubeconfig" \
		--bind-address=127.0.0.1 --secure-port=10299 --leader-elect=false
	until_true 60 "the controller manager works" kubectl -n default get serviceaccount default
}

# A process that is gone says more in its log than a timeout does.
api_is_ready() {
	running kube-apiserver || die "kube-apiserver ended: $(tail -n 3 "$state/log/kube-apiserver.log")"
	kubectl get --raw=/readyz
}
