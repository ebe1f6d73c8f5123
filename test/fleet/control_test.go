// SPDX-License-Identifier: Apache-2.0

//go:build fleet

package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// token is that of the one user there is, who may do everything.
const token = "fleet"

// controlPlane is an API server with an etcd of its own, on ports and in a folder of its own: it may run beside the
// cluster of test/cluster.
type controlPlane struct {
	kubeconfig string // a file
	config     *rest.Config
	client     kubernetes.Interface
}

// startControlPlane starts the programs that test/cluster builds. There is no controller: the objects are all that
// there is.
func startControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	write(t, file("tokens.csv"), token+",fleet-admin,1,system:masters\n")
	writeKey(t, file("accounts.key"))
	ports := freePorts(t, 3)
	etcd, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	start(t, file("etcd.log"), "etcd", "--data-dir", file("etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", etcd, "--advertise-client-urls", etcd, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--quota-backend-bytes", "4294967296")
	server := fmt.Sprintf("https://127.0.0.1:%d", ports[2])
	ended := start(t, file("kube-apiserver.log"), "kube-apiserver", "--etcd-servers", etcd,
		"--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(ports[2]), "--advertise-address", "127.0.0.1",
		"--cert-dir", dir, "--token-auth-file", file("tokens.csv"), "--authorization-mode", "RBAC",
		"--service-cluster-ip-range", serviceCIDR, "--allow-privileged", "--endpoint-reconciler-type", "none",
		// Nobody makes accounts here, and none of the pods needs one.
		"--disable-admission-plugins", "ServiceAccount",
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", file("accounts.key"), "--service-account-signing-key-file", file("accounts.key"),
		// The kubelets are all on this machine. The Nodes' own addresses are those of the captured node.
		"--kubelet-preferred-address-types", "ExternalDNS",
		"--max-requests-inflight", "2000", "--max-mutating-requests-inflight", "1000")
	c := &controlPlane{
		kubeconfig: file("kubeconfig"),
		config: &rest.Config{
			Host: server, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1,
			ContentConfig: rest.ContentConfig{
				ContentType: "application/vnd.kubernetes.protobuf", AcceptContentTypes: "application/vnd.kubernetes.protobuf",
			},
		},
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["fleet"] = &clientcmdapi.Cluster{Server: server, InsecureSkipTLSVerify: true}
	kubeconfig.AuthInfos["fleet"] = &clientcmdapi.AuthInfo{Token: token}
	kubeconfig.Contexts["fleet"] = &clientcmdapi.Context{Cluster: "fleet", AuthInfo: "fleet"}
	kubeconfig.CurrentContext = "fleet"
	if err := clientcmd.WriteToFile(*kubeconfig, c.kubeconfig); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := c.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		cancel()
		if err == nil {
			return c
		}
		select {
		case <-ended:
			t.Fatalf("the API server has ended:\n%s", tail(file("kube-apiserver.log")))
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("the API server is not ready: %v\n%s", err, tail(file("kube-apiserver.log")))
		}
	}
}

// listed is how many bytes the API server has sent in lists of a kind.
func (c *controlPlane) listed(t *testing.T, resource string) (n float64) {
	t.Helper()
	metrics, err := c.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(metrics)) {
		if strings.HasPrefix(line, "apiserver_response_sizes_sum{") && strings.Contains(line, `resource="`+resource+`"`) &&
			strings.Contains(line, `verb="LIST"`) {
			value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:len(line)-1], 64)
			if err != nil {
				t.Fatal(err)
			}
			n += value
		}
	}
	return n
}

// start starts a program, which ends with the test.
func start(t *testing.T, log, program string, args ...string) (ended <-chan struct{}) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("%v: test/cluster/cluster build makes it, test/cluster/cluster env has its path", err)
	}
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ends, its log says
		close(done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL) // what it has written is not needed any more
		<-done
		out.Close()
	})
	return done
}

// freePorts returns ports of the loopback interface on which nobody listens.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:gocritic // all are taken until all are known
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func writeKey(t *testing.T, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	data, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, name, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: data})))
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tail is the end of a log.
func tail(name string) string {
	data, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}
