// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// TestScriptCollectsWhatIsJudged runs the script of dump --script where there are real rules, those of the example with
// an endpoint missing, and judges what it has written: as a directory and as an archive.
func TestScriptCollectsWhatIsJudged(t *testing.T) {
	testutil.NeedRoot(t, "iptables-nft-restore", "ip6tables-nft-restore", "ip", "nft", "nfacct", "sh", "tar", "gzip",
		"awk")
	ns := testutil.NewExampleNode(t, filepath.Join(broken, "nodes", "worker-1"))

	dir := t.TempDir()
	script := filepath.Join(dir, "collect.sh")
	if code, out, errOut := runPlugin(t, "dump", "--script", "--node", "worker-1", "-o", script); code != 0 {
		t.Fatalf("%d %s%s", code, out, errOut)
	}
	before := rulesOf(ns.Run(t, "iptables-nft-save"))
	archive, folder := filepath.Join(dir, "w.tar.gz"), filepath.Join(dir, "w")
	for _, to := range []string{archive, folder} {
		t.Log(ns.Run(t, "sh", script, to))
	}
	if after := rulesOf(ns.Run(t, "iptables-nft-save")); after != before {
		t.Errorf("the script has changed the rules:\n%s\nbefore:\n%s", after, before)
	}
	unpacked := filepath.Join(dir, "unpacked")
	if err := os.Mkdir(unpacked, 0o700); err != nil {
		t.Fatal(err)
	}
	testutil.Run(t, "", "tar", "-C", unpacked, "-xzf", archive)
	for _, at := range []string{folder, unpacked} {
		if err := os.CopyFS(filepath.Join(at, "cluster"), os.DirFS(filepath.Join(broken, "cluster"))); err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(filepath.Join(at, "nodes", "worker-1"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !slices.Contains(snapshot.NodeFiles, f.Name()) {
				t.Errorf("%s is not a file of the format", f.Name())
			}
		}
		code, out, errOut := runPlugin(t, "trace", "web", "-n", "shop", "--snapshot", at)
		if code != 1 || !strings.Contains(out, "MissingEndpoint  10.244.3.4:8080") {
			t.Errorf("exit code %d:\n%s%s", code, out, errOut)
		}
		if strings.Contains(out, "FileNotRead") && strings.Contains(out, "was not read:") {
			t.Errorf("a file cannot be read:\n%s", out)
		}
	}
	// It never writes over what is there.
	cmd := ns.Command(t, "sh", script, folder)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "exists") {
		t.Errorf("%v: %s", err, out)
	}
}

// servesAs is the environment variable with which this test's program answers at kube-proxy's port, with its value.
const servesAs = "SVCPROXY_TEST_SERVES"

func init() { //nolint:gochecknoinits // it is another program then
	text := os.Getenv(servesAs)
	if text == "" {
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:10249")
	if err != nil {
		panic(err)
	}
	fmt.Println("ready") //nolint:forbidigo // the test that started it waits for this
	server := http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, text)
		}),
	}
	panic(server.Serve(l))
}

// The script takes a process for kube-proxy as the helper does: if root vouches for it, and not for its name. Those
// that merely have it change no file but the comments of processes.txt, and no one else is asked in its place.
func TestScriptBelievesNoName(t *testing.T) {
	if !testutil.IsolateProcesses(t, "sh", "awk", "curl", "ip") {
		return
	}
	testutil.Run(t, "", "ip", "link", "set", "lo", "up")
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for parent := filepath.Dir(dir); parent != os.TempDir() && parent != "/"; parent = filepath.Dir(parent) {
		if err := os.Chmod(parent, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	start := func(name string, user uint32) (pid int, stop func()) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, program, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), path)
		cmd.Env = append(os.Environ(), servesAs+"=of "+name)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		stop = testutil.Ready(t, cmd)
		return cmd.Process.Pid, stop
	}
	script := filepath.Join(dir, "collect.sh")
	if code, out, errOut := runPlugin(t, "dump", "--script", "--node", "worker-1", "-o", script); code != 0 {
		t.Fatalf("%d %s%s", code, out, errOut)
	}
	collected := func(name string) (files map[string]string, said string) {
		to := filepath.Join(dir, name)
		said = testutil.Run(t, "", "sh", script, to)
		files = map[string]string{}
		list, err := os.ReadDir(filepath.Join(to, "nodes", "worker-1"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			data, err := os.ReadFile(filepath.Join(to, "nodes", "worker-1", f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			files[f.Name()] = string(data)
		}
		return files, said
	}
	for name, tt := range map[string]struct {
		program  string
		user     uint32
		believed bool
		says     string
	}{
		"root's": {"kube-proxy", 0, true, ""},
		"a user's": {
			"kube-proxy", 65534, false, "kube-proxy: not taken for it, it runs as user 65534, without CAP_NET_ADMIN",
		},
		"another program": {"another", 0, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pid, stop := start(tt.program, tt.user)
			defer stop()
			files, said := collected(strings.ReplaceAll(name, " ", "-"))
			line := fmt.Sprintf("\n%d ", pid)
			if got := strings.Contains(files["processes.txt"], line); got != tt.believed {
				t.Errorf("processes.txt has %q", files["processes.txt"])
			}
			if tt.says != "" && !strings.Contains(files["processes.txt"], fmt.Sprintf("# %d %s\n", pid, tt.says)) {
				t.Errorf("processes.txt has %q", files["processes.txt"])
			}
			for _, file := range []string{"configz.json", "metrics.txt", "proxyMode.txt"} {
				if got := files[file]; tt.believed != (got == "of kube-proxy") || !tt.believed && got != "" {
					t.Errorf("%s: %q\n%s", file, got, said)
				}
			}
			if _, has := files["kube-proxy-flags.txt"]; has != tt.believed {
				t.Errorf("flags: %v", has)
			}
		})
	}
}

// TestScriptNamesTheNode: without --node the node says its name; a name that is none never gets into the script.
func TestScriptNamesTheNode(t *testing.T) {
	_, out, _ := runPlugin(t, "dump", "--script")
	if !strings.Contains(out, "\nnode=''") || strings.Contains(out, "@FLAGS@") {
		t.Errorf("got %s", out)
	}
	for _, args := range []string{
		"--node a;b", "--node a --node b", "--all-nodes", "-l a=b", "--local", "web", "--end-to-end",
	} {
		code, out, _ := runPlugin(t, append([]string{"dump", "--script"}, strings.Fields(args)...)...)
		if code != 2 || out != "" {
			t.Errorf("%s: exit code %d, %q", args, code, out)
		}
	}
}

// counted are the counters of policies.
var counted = regexp.MustCompile(`\[\d+:\d+\]`)

// rulesOf is a save without its comments, which have the time, and without counters.
func rulesOf(save string) string {
	lines := slices.DeleteFunc(strings.Split(save, "\n"), func(l string) bool { return strings.HasPrefix(l, "#") })
	return counted.ReplaceAllString(strings.Join(lines, "\n"), "")
}
