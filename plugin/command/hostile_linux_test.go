// SPDX-License-Identifier: Apache-2.0

package command

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// What hostile input may cost: the limits. The time is that of the processors, as the machine may be busy.
const (
	hostileMemory = 600 << 20
	hostileTime   = 10 * time.Second
)

// TestPluginProcess is the plugin as a process of its own, so that its memory and time can be measured.
func TestPluginProcess(t *testing.T) {
	path := os.Getenv("SVCPROXY_TEST_SNAPSHOT")
	if path == "" {
		t.Skip("it is the child process of the tests of hostile input")
	}
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	code := Main(t.Context(), []string{"verify", "-A", "--snapshot", path}, streams, System{})
	// The peak of this process's own memory: ru_maxrss has that of the parent before exec, too.
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv("SVCPROXY_TEST_STATUS"), status, 0o600); err != nil {
		t.Fatal(err)
	}
	os.Exit(code) //nolint:forbidigo // the exit code is what the parent checks
}

// measured runs the plugin in a process of its own; memory is its peak in bytes, spent the time of the processors.
func measured(t *testing.T, path string) (code int, stdout, stderr string, memory int64, spent time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	statusFile := filepath.Join(t.TempDir(), "status")
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestPluginProcess$")
	cmd.Env = append(os.Environ(), "SVCPROXY_TEST_SNAPSHOT="+path, "SVCPROXY_TEST_STATUS="+statusFile,
		"KUBECONFIG=/nonexistent", "GOGC=200", "GOMEMLIMIT=448MiB") // as cmd/kubectl-svcproxy sets them
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("it did not end within 2 minutes (%v)", err)
	}
	status, err := os.ReadFile(statusFile)
	if err != nil {
		t.Fatalf("it did not end in order (%v): %.1000s", err, errOut.String())
	}
	_, rest, _ := strings.Cut(string(status), "\nVmHWM:")
	var kilobytes int64
	if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
		t.Fatal(err)
	}
	used := cmd.ProcessState
	return used.ExitCode(), out.String(), errOut.String(), kilobytes << 10, used.UserTime() + used.SystemTime()
}

const (
	node     = "nodes/worker-1/"
	saveFile = node + "iptables-save.txt"
)

// content writes a file.
type content func(w io.Writer)

func text(s string) content { return func(w io.Writer) { io.WriteString(w, s) } } //nolint:errcheck // by the writer

// times repeats a line with its number.
func times(n int, head, line, tail string) content {
	return func(w io.Writer) {
		io.WriteString(w, head) //nolint:errcheck // checked where the writer is flushed
		for i := range n {
			if strings.Contains(line, "%") {
				fmt.Fprintf(w, line, i)
			} else {
				io.WriteString(w, line) //nolint:errcheck // as above
			}
		}
		io.WriteString(w, tail) //nolint:errcheck // as above
	}
}

// gigabyte is 1 GB of one byte, compressed: 64 members of gzip.
func gigabyte(c byte) content {
	return func(w io.Writer) {
		var b bytes.Buffer
		zipped(bytes.Repeat([]byte{c}, 16<<20))(&b)
		for range 64 {
			w.Write(b.Bytes()) //nolint:errcheck // checked where the writer is flushed
		}
	}
}

func zipped(data []byte) content {
	return func(w io.Writer) {
		z := gzip.NewWriter(w)
		z.Write(data) //nolint:errcheck // Close says so, too
		if err := z.Close(); err != nil {
			panic(err)
		}
	}
}

func written(c content) []byte {
	var b bytes.Buffer
	c(&b)
	return b.Bytes()
}

// without is the example with files added, and without those of the names in gone.
func with(t *testing.T, files map[string]content, gone ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(broken)); err != nil {
		t.Fatal(err)
	}
	for _, name := range gone {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w := bufio.NewWriter(f)
		c(w)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// replaced is the example with one file in another's place.
func replaced(old, name string, c content) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		return with(t, map[string]content{name: c}, old)
	}
}

// added is the example with one file more.
func added(name string, c content) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		return with(t, map[string]content{name: c})
	}
}

// changed is the example with something else in the place of a file.
func changed(name string, do func(path string) error) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		dir := with(t, nil, name)
		if err := do(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
}

// archive is a .tar.gz of the example and of what more writes.
func archive(more func(w *tar.Writer)) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.AddFS(os.DirFS(broken)); err != nil {
			t.Fatal(err)
		}
		more(w)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return file(t, zipped(b.Bytes()))
	}
}

// file writes a file of any kind.
func file(t *testing.T, c content) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snap.tar.gz")
	if err := os.WriteFile(path, written(c), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// member writes a member of an archive.
func member(h *tar.Header, data string) func(w *tar.Writer) {
	return func(w *tar.Writer) {
		h.Mode, h.Size = 0o600, int64(len(data))
		if err := w.WriteHeader(h); err != nil {
			panic(err)
		}
		if _, err := io.WriteString(w, data); err != nil {
			panic(err)
		}
	}
}

// blocks are members of an archive without its end, n in number.
func blocks(n int, name string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range n {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf(name, i), Typeflag: tar.TypeReg, Mode: 0o600}); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

// sparse packs a file of 8 GB without a byte in it.
func sparse(format string) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		dir := with(t, nil)
		if err := os.Truncate(filepath.Join(dir, saveFile), 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, saveFile), 8<<30); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "snap.tar.gz")
		cmd := exec.CommandContext(t.Context(), "tar", "-C", dir, "--sparse", "--format="+format, "-czf", out, ".")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return out
	}
}

// comment is a line of 220 bytes that says nothing.
var comment = "# " + strings.Repeat("0123456789", 22) + "\n"

// hostile are inputs that take memory or time without end, or that say two things. Each is one error.
var hostile = []struct {
	name  string
	write func(t *testing.T) string
	want  string
}{
	{"a gigabyte of zeros", replaced(saveFile, saveFile+".gz", gigabyte(0)), "is larger than 128 MB"},
	{"a gigabyte of newlines", replaced(saveFile, saveFile+".gz", gigabyte('\n')), "is larger than 128 MB"},
	{
		"100 MB of newlines",
		replaced(saveFile, saveFile+".gz", zipped(bytes.Repeat([]byte("\n"), 100<<20))),
		"more than 500000 lines",
	},
	{"100 MB of zeros", replaced(saveFile, saveFile+".gz", zipped(make([]byte, 100<<20))), "longer than 1 MB"},
	{
		"a line of 50 MB",
		replaced(saveFile, saveFile, times(1, "*nat\n-A ", strings.Repeat("a", 50<<20), "\nCOMMIT\n")),
		"line 2 of iptables-save.txt is longer than 1 MB",
	},
	{"gzip in gzip", replaced(saveFile, saveFile+".gz", zipped(written(gigabyte(0)))), "is compressed twice"},
	{
		"gzip in gzip in an archive",
		func(t *testing.T) string {
			t.Helper()
			return archive(member(&tar.Header{Name: node + "ipset-save.txt.gz", Typeflag: tar.TypeReg},
				string(written(zipped(written(gigabyte(0)))))))(t)
		},
		"is compressed twice",
	},
	{"a bomb in an archive", func(t *testing.T) string {
		t.Helper()
		return archive(member(&tar.Header{Name: node + "ipset-save.txt.gz", Typeflag: tar.TypeReg},
			string(written(gigabyte(0)))))(t)
	}, "is larger than 128 MB"},
	{
		"1,000,000 rules",
		replaced(saveFile, saveFile, times(1_000_000, "*nat\n:A - [0:0]\n", "-A A -j RETURN\n", "COMMIT\n")),
		"more than 500000 lines",
	},
	{
		"1,000,000 chains",
		replaced(saveFile, saveFile, times(1_000_000, "*nat\n", ":KUBE-%d - [0:0]\n", "COMMIT\n")),
		"more than 500000 lines",
	},
	{
		"1,000,000 members of a set",
		added(node+"ipset-save.txt", times(1_000_000, "create A hash:ip family inet\n", "add A 10.0.0.0/%d\n", "")),
		"more than 500000 lines",
	},
	{
		"1,000,000 connections",
		added(
			node+"conntrack.txt",
			times(
				1_000_000,
				"",
				"tcp 6 10 src=1.1.1.1 dst=2.2.2.2 sport=1 dport=%d src=2.2.2.2 dst=1.1.1.1 sport=1 dport=2\n",
				"",
			),
		),
		"more than 500000 lines",
	},
	{
		"1,000,000 real servers",
		added(
			node+"ipvsadm.txt",
			times(1_000_000, "-A -t 10.96.0.1:443 -s rr\n", "-a -t 10.96.0.1:443 -r 10.0.0.1:%d -m -w 1\n", ""),
		),
		"more than 250000 lines",
	},
	{
		"1,000,000 rules of nftables",
		replaced(
			node+"nft-ruleset.json.gz",
			node+"nft-ruleset.json",
			times(
				1_000_000,
				`{"nftables":[{"metainfo":{}}`,
				`,{"rule":{"family":"ip","table":"t","chain":"c","expr":[]}}`,
				"]}",
			),
		),
		"a list of more than 500000 elements",
	},
	{
		"1,000,000 elements of nftables",
		replaced(
			node+"nft-ruleset.json.gz",
			node+"nft-ruleset.json",
			times(
				1_000_000,
				`{"nftables":[{"set":{"family":"ip","table":"t","name":"s","type":"ipv4_addr","elem":["1.1.1.1"`,
				`,"10.0.%d"`,
				"]}}]}",
			),
		),
		"a list of more than 500000 elements",
	},
	{
		"JSON of a million levels",
		replaced(node+"ip-addr.json", node+"ip-addr.json", times(1_000_000, "", "[", "")),
		"nested deeper than 200 levels",
	},
	{
		"rules of a million levels",
		replaced(node+"nft-ruleset.json.gz", node+"nft-ruleset.json", times(1_000_000, `{"nftables":`, `{"a":`, "")),
		"nested deeper than 200 levels",
	},
	{
		"1,000,000 routes",
		replaced(
			node+"ip-route.json",
			node+"ip-route.json",
			times(1_000_000, `[{"dst":"default"}`, `,{"dst":"10.0.0.0/8"}`, "]"),
		),
		"a list of more than 200000 elements",
	},
	{
		"200 MB of settings",
		replaced(
			node+"sysctl.txt",
			node+"sysctl.txt",
			times(1_000_000, "", "net.ipv4."+strings.Repeat("m", 200)+" = %d\n", ""),
		),
		"is larger than 32 MB",
	},
	{
		"1,000,000 Services",
		replaced(
			"cluster/services.yaml",
			"cluster/services.json",
			times(1_000_000, `{"kind":"List","items":[{"metadata":{"name":"a"}}`, `,{"metadata":{"name":"a"}}`, "]}"),
		),
		"more than",
	},
	{
		"10,000,000 endpoints",
		replaced(
			"cluster/endpointslices.yaml",
			"cluster/endpointslices.json",
			times(10_000_000, `{"kind":"List","items":[{"metadata":{"name":"a"},"endpoints":[{}`, ",{}", "]}]}"),
		),
		"a list of more than 500000 elements",
	},
	{
		"a Service of a million levels",
		replaced(
			"cluster/services.yaml",
			"cluster/services.json",
			times(1_000_000, `{"kind":"List","items":[`, `{"a":`, ""),
		),
		"nested deeper than 200 levels",
	},
	{"YAML whose aliases grow", replaced("cluster/services.yaml", "cluster/services.yaml", func(w io.Writer) {
		io.WriteString(w, "kind: List\nitems: []\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n") //nolint:errcheck // as above
		for i := 1; i < 30; i++ {
			fmt.Fprintf(w, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
		}
	}), "excessive aliasing"},
	{
		"YAML of a million values",
		replaced(
			"cluster/services.yaml",
			"cluster/services.yaml",
			times(300_000, "kind: List\nitems:\n", "- {a: %d}\n", ""),
		),
		"more than 500000 values of YAML",
	},
	{
		"a configuration of 30 MB",
		replaced(node+"configz.json", node+"kube-proxy-config.yaml", times(3_000_000, "a:\n", "- a: %d\n", "")),
		"is larger than 1 MB",
	},
	{
		"a named pipe",
		changed(saveFile, func(path string) error { return syscall.Mkfifo(path, 0o600) }),
		"is a named pipe: a regular file was expected",
	},
	{
		"a directory named like a file",
		changed(saveFile, func(path string) error { return os.Mkdir(path, 0o750) }),
		"is a directory: a regular file was expected",
	},
	{
		"a link to a device",
		changed(saveFile, func(path string) error { return os.Symlink("/dev/zero", path) }),
		"is a symbolic link that cannot be followed within the snapshot",
	},
	{
		"a link out of the snapshot",
		changed(saveFile, func(path string) error { return os.Symlink("../../../../../../../../etc/passwd", path) }),
		"is a symbolic link that cannot be followed within the snapshot",
	},
	{
		"a loop of links",
		changed(saveFile, func(path string) error { return os.Symlink("iptables-save.txt", path) }),
		"is a symbolic link that cannot be followed within the snapshot",
	},
	{"a link to a node's directory", func(t *testing.T) string {
		t.Helper()
		dir := with(t, nil)
		if err := os.Symlink("worker-1", filepath.Join(dir, "nodes", "worker-2")); err != nil {
			t.Fatal(err)
		}
		return dir
	}, "is a symbolic link, which is not followed to a directory"},
	{"a device", changed(saveFile, func(path string) error {
		return syscall.Mknod(path, syscall.S_IFCHR|0o600, 1<<8|5) // /dev/zero
	}), "is a device: a regular file was expected"},
	{
		"a file twice, compressed and not",
		added(saveFile+".gz", zipped([]byte("*nat\nCOMMIT\n"))),
		"holds both nodes/worker-1/iptables-save.txt",
	},
	{
		"Services as JSON and as YAML",
		added("cluster/services.json", text(`{"kind":"List","items":[]}`)),
		"holds both cluster/services.",
	},
	{
		"two snapshots in a directory",
		added("old/cluster/services.json", text(`{"kind":"List","items":[]}`)),
		"holds two snapshots, in ",
	},
	{"a named pipe in the place of a snapshot", func(t *testing.T) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "snap.tar.gz")
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}, "is a named pipe: a directory or a .tar.gz was expected"},
	{
		"a member twice",
		archive(member(&tar.Header{Name: saveFile, Typeflag: tar.TypeReg}, "*nat\nCOMMIT\n")),
		"holds nodes/worker-1/iptables-save.txt twice: once was expected",
	},
	{
		"a member twice by another name",
		archive(
			member(&tar.Header{Name: "./nodes//worker-1/./iptables-save.txt", Typeflag: tar.TypeReg}, "*nat\nCOMMIT\n"),
		),
		"holds nodes/worker-1/iptables-save.txt twice: once was expected",
	},
	{
		"two snapshots in an archive",
		archive(member(&tar.Header{Name: "b/" + saveFile, Typeflag: tar.TypeReg}, "")),
		"holds two snapshots, in its topmost folder and in b/",
	},
	{
		"an absolute name",
		archive(member(&tar.Header{Name: "/" + saveFile, Typeflag: tar.TypeReg}, "")),
		`a member named "/nodes/worker-1/iptables-save.txt"`,
	},
	{
		"a name with ..",
		archive(member(&tar.Header{Name: "nodes/../" + saveFile, Typeflag: tar.TypeReg}, "")),
		`a member named "nodes/../nodes/worker-1/iptables-save.txt"`,
	},
	{
		"a hard link in an archive",
		archive(member(&tar.Header{Name: node + "ipset-save.txt", Typeflag: tar.TypeLink, Linkname: saveFile}, "")),
		"is a hard link",
	},
	{
		"a symbolic link in an archive",
		archive(
			member(&tar.Header{Name: node + "ipset-save.txt", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, ""),
		),
		"is a symbolic link",
	},
	{
		"a device in an archive",
		archive(
			member(&tar.Header{Name: node + "ipset-save.txt", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5}, ""),
		),
		"is a device: a regular file was expected",
	},
	{
		"a named pipe in an archive",
		archive(member(&tar.Header{Name: node + "ipset-save.txt", Typeflag: tar.TypeFifo}, "")),
		"is a named pipe: a regular file was expected",
	},
	{"an attribute of 64 MB", func(t *testing.T) string {
		t.Helper()
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		member(&tar.Header{Name: "x", Typeflag: tar.TypeReg}, strings.Repeat("a", 64<<20))(w)
		h := b.Bytes()[:512]
		sum := 0
		copy(h[148:156], "        ")
		h[156] = tar.TypeXHeader
		for _, c := range h {
			sum += int(c)
		}
		copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
		return file(t, zipped(b.Bytes()))
	}, "is damaged or cut off: archive/tar: header field too long"},
	{"a sparse file of 8 GB, as GNU tar writes it", sparse("gnu"), "is larger than 128 MB"},
	{"a sparse file of 8 GB, in PAX", sparse("pax"), "is larger than 128 MB"},
	{"a gigabyte of zeros as a member", func(t *testing.T) string {
		t.Helper()
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Name: saveFile, Typeflag: tar.TypeReg, Size: 1 << 30}); err != nil {
			t.Fatal(err)
		}
		return file(t, func(w io.Writer) { zipped(b.Bytes())(w); gigabyte(0)(w) })
	}, "is larger than 128 MB"},
	{"1,000,000 members", func(t *testing.T) string {
		t.Helper()
		part := written(zipped(blocks(10_000, "x/%d")))
		return file(t, func(w io.Writer) {
			for range 100 {
				w.Write(part) //nolint:errcheck // a buffer
			}
		})
	}, "has more than 200000 members"},
	{"11,000 nodes", func(t *testing.T) string {
		t.Helper()
		return file(t, zipped(blocks(11_000, "nodes/n%d/listen.txt")))
	}, "holds more than 10000 nodes"},
	{
		"a name of a node that is too long",
		archive(
			member(&tar.Header{Name: "nodes/" + strings.Repeat("n", 300) + "/listen.txt", Typeflag: tar.TypeReg}, ""),
		),
		"names of at most 253 bytes were expected",
	},
	{"a second archive behind the first", func(t *testing.T) string {
		t.Helper()
		one := archive(func(*tar.Writer) {})(t)
		data, err := os.ReadFile(one)
		if err != nil {
			t.Fatal(err)
		}
		return file(t, func(w io.Writer) { w.Write(data); w.Write(data) }) //nolint:errcheck // a buffer
	}, "goes on after the end of its archive"},
	{"10 GB of zeros behind an archive", func(t *testing.T) string {
		t.Helper()
		one := archive(func(*tar.Writer) {})(t)
		data, err := os.ReadFile(one)
		if err != nil {
			t.Fatal(err)
		}
		return file(t, func(w io.Writer) {
			w.Write(data) //nolint:errcheck // a buffer
			for range 10 {
				gigabyte(0)(w)
			}
		})
	}, "is compressed more than"},
	{"a node of 300 MB", func(t *testing.T) string {
		t.Helper()
		large := zipped(bytes.Repeat([]byte(comment), 400_000))
		return with(t, map[string]content{
			node + "iptables-nft-save.txt.gz": large, node + "iptables-legacy-save.txt.gz": large,
			node + "ip6tables-legacy-save.txt.gz": large, node + "ipset-save.txt.gz": large,
		})
	}, "the files of node worker-1 are larger than 256 MB together"},
}

// TestHostileSnapshot reads each hostile input in a process of its own: one clear error within the limits.
func TestHostileSnapshot(t *testing.T) {
	for _, tt := range hostile {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr, memory, spent := measured(t, tt.write(t))
			t.Logf("%d MB, %v: %s", memory>>20, spent.Round(time.Millisecond), strings.TrimSpace(stderr))
			errs := 0
			for line := range strings.Lines(stderr) {
				if strings.HasPrefix(line, "error: ") {
					errs++
				}
			}
			if code != run.ExitUsage || stdout != "" || errs != 1 || !strings.Contains(stderr, tt.want) {
				t.Errorf("exit code %d, %d errors, stdout %.200q, stderr\n%.600s\nwant one error with %q", code, errs, stdout,
					stderr, tt.want)
			}
			if memory > hostileMemory || spent > hostileTime {
				t.Errorf("%d MB and %v; want at most %d MB and %v", memory>>20, spent, hostileMemory>>20, hostileTime)
			}
		})
	}
}
