// SPDX-License-Identifier: Apache-2.0

//go:build vm

package ipvs

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	server = "https://127.0.0.1:6443"
	token  = "admin" // of a server that nobody else can reach
)

var kubeconfig string

// startControlPlane runs etcd and an API server on the loopback interface. There is nothing in this machine to be kept
// from anybody: whoever has the token may do everything, and that is what makes it quick to begin.
func startControlPlane(ctx context.Context) error {
	key, tokens, certs := filepath.Join(work, "key.pem"), filepath.Join(work, "tokens.csv"), filepath.Join(work, "certs")
	if err := writeKey(key); err != nil {
		return err
	}
	if err := os.WriteFile(tokens, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return err
	}
	if _, err := start(ctx, filepath.Join(bin, "etcd"), "--data-dir", filepath.Join(work, "etcd"), "--unsafe-no-fsync",
		"--log-level", "warn"); err != nil {
		return err
	}
	api, err := start(ctx, filepath.Join(bin, "kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=127.0.0.1", "--advertise-address=10.77.0.1",
		"--endpoint-reconciler-type=none", // which would have kube-proxy write everything anew
		"--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112", "--authorization-mode=AlwaysAllow",
		"--token-auth-file="+tokens, "--cert-dir="+certs,
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+key,
		"--service-account-signing-key-file="+key)
	if err != nil {
		return err
	}
	kubeconfig = filepath.Join(work, "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: vm, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: %s}}]
contexts: [{name: vm, context: {cluster: vm, user: admin}}]
current-context: vm
`, server, token)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access())
	if err != nil {
		return err
	}
	return api.await(func() error {
		_, err := client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err != nil {
			return err
		}
		_, err = client.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		return err
	})
}

func access() *rest.Config {
	return &rest.Config{
		Host: server, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 1000, Burst: 1000,
		WarningHandler: rest.NoWarnings{},
		// which costs the server less than JSON
		ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf"},
	}
}

// writeKey writes what service account tokens would be signed with.
func writeKey(file string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// createObjects creates the captured Nodes, Services and EndpointSlices, with the addresses and ports that they had.
func createObjects(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(access())
	if err != nil {
		return err
	}
	var nodes corev1.NodeList
	var services corev1.ServiceList
	var endpoints discoveryv1.EndpointSliceList
	for file, into := range map[string]any{"nodes": &nodes, "services": &services, "endpointslices": &endpoints} {
		data, err := os.ReadFile(filepath.Join(captured, "cluster", file+".json"))
		if err != nil {
			return err
		}
		if err := json.Unmarshal(data, into); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	for i := range nodes.Items {
		n := fresh(&nodes.Items[i])
		if _, err := client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for i := range services.Items {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: services.Items[i].Namespace}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	// Both at once: the server has two processors.
	done := make(chan error, 2)
	go func() { done <- createServices(ctx, client, services.Items) }()
	go func() { done <- createSlices(ctx, client, endpoints.Items) }()
	return errors.Join(<-done, <-done)
}

// own is where the API server makes the Service itself.
const own = "default"

func createSlices(ctx context.Context, client kubernetes.Interface, all []discoveryv1.EndpointSlice) error {
	for i := range all {
		s := fresh(&all[i])
		if _, err := client.DiscoveryV1().EndpointSlices(s.Namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// fresh takes away what the API server it was captured from has given.
func fresh[T metav1.Object](o T) T {
	o.SetUID("")
	o.SetResourceVersion("")
	o.SetManagedFields(nil)
	return o
}

func createServices(ctx context.Context, client kubernetes.Interface, all []corev1.Service) error {
	for i := range all {
		s := fresh(&all[i])
		if s.Namespace == own {
			continue
		}
		status := s.Status
		made, err := client.CoreV1().Services(s.Namespace).Create(ctx, s, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if len(status.LoadBalancer.Ingress) == 0 {
			continue
		}
		made.Status = status
		if _, err := client.CoreV1().Services(s.Namespace).UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// proxyProgram is the kube-proxy that KUBE_PROXY names; without it that of the cluster's own version.
func proxyProgram() string {
	if p := os.Getenv("KUBE_PROXY"); p != "" {
		return p
	}
	return filepath.Join(bin, "kube-proxy")
}

// kubeProxy is the one that runs.
var kubeProxy *program

// startKubeProxy runs it as the captured one was configured, but it never syncs unless an object changes:
// what a test breaks stays broken.
//
// It learns the node's zone last. One that learns of it as it starts may never go by it: cmd/kube-proxy/app/server.go
// of 1.37 registers its proxier with NewNodeTopologyConfig after that has begun to listen, as a busy machine showed.
func startKubeProxy(ctx context.Context) error {
	if err := setZone(ctx, "null"); err != nil {
		return err
	}
	if err := runKubeProxy(ctx); err != nil {
		return err
	}
	before, err := stateOf(ctx)
	if err != nil {
		return err
	}
	if err := setZone(ctx, `"zone-a"`); err != nil {
		return err
	}
	return kubeProxy.await(func() error {
		now, err := stateOf(ctx)
		if err == nil && slices.Equal(now, before) {
			err = errors.New("it does not go by the node's zone")
		}
		return cmp.Or(err, settled(ctx))
	})
}

// setZone writes the node's zone, a JSON string or null.
func setZone(ctx context.Context, zone string) error {
	client, err := kubernetes.NewForConfig(access())
	if err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, corev1.LabelTopologyZone, zone)
	_, err = client.CoreV1().Nodes().Patch(ctx, nodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func runKubeProxy(ctx context.Context) error {
	file := filepath.Join(work, "kube-proxy.yaml")
	text := fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ipvs
hostnameOverride: %s
clientConnection: {kubeconfig: %s}
clusterCIDR: 10.244.0.0/16,fd00:10:244::/56
detectLocalMode: ClusterCIDR
ipvs: {scheduler: rr, strictARP: true, syncPeriod: 24h}
`, nodeName, kubeconfig)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	proxy, err := start(ctx, proxyProgram(), "--config="+file, "-v=2")
	if err != nil {
		return err
	}
	kubeProxy = proxy
	return proxy.await(func() error { return settled(ctx) })
}

// settled tells whether kube-proxy has written all, and writes no more. A sync may follow on another; it begins within
// a second, and one that changes anything shows within two more.
func settled(ctx context.Context) error {
	if err := programmed(ctx); err != nil {
		return err
	}
	before, err := stateOf(ctx)
	if err != nil {
		return err
	}
	time.Sleep(3 * time.Second)
	now, err := stateOf(ctx)
	if err == nil && !slices.Equal(now, before) {
		err = errors.New("it is still at work")
	}
	return cmp.Or(err, programmed(ctx))
}

// programmed tells whether kube-proxy has nothing left to do, for either family.
func programmed(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10249/metrics", http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	metrics, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	const synced = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
	last, families := map[string]float64{}, 0
	for line := range strings.Lines(string(metrics)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			last[name] = value
		}
	}
	for name, at := range last {
		family, found := strings.CutPrefix(name, synced)
		if !found {
			continue
		}
		families++
		if family == "" { // before 1.33 the families share their metrics
			families = 2
		}
		if at == 0 || last["kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"+family] > at {
			return fmt.Errorf("%s is %v", name, at)
		}
	}
	if families < 2 {
		return fmt.Errorf("%d families are programmed, two are there", families)
	}
	return nil
}
