// SPDX-License-Identifier: Apache-2.0

package command

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// What hostile input may cost. The time is that of the processors, as the machine may be busy; it tells an end from
// none, not how fast that is: where memory is slow to be had (a virtual machine that gives it back), 500 MB take 15 s.
const (
	hostileMemory = 600 << 20
	hostileTime   = time.Minute
)

const (
	node     = "nodes/worker-1/"
	saveFile = node + "iptables-save.txt"
)

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
		replaced(saveFile, saveFile+".gz", members(50, bytes.Repeat([]byte("\n"), 2<<20))),
		"more than 500000 lines",
	},
	{"100 MB of zeros", replaced(saveFile, saveFile+".gz", members(50, make([]byte, 2<<20))), "longer than 1 MB"},
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
		"rules of a million levels",
		replaced(node+"nft-ruleset.json.gz", node+"nft-ruleset.json", times(1_000_000, `{"nftables":`, `{"a":`, "")),
		"nested deeper than 200 levels",
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
	}, "continues after the end of its archive"},
	{"10 GB of zeros behind an archive", func(t *testing.T) string {
		t.Helper()
		one := archive(func(*tar.Writer) {})(t)
		data, err := os.ReadFile(one)
		if err != nil {
			t.Fatal(err)
		}
		return file(t, func(w io.Writer) {
			w.Write(data) //nolint:errcheck // a buffer
			zeros := gigabyte(0)
			for range 10 {
				zeros(w)
			}
		})
	}, "is compressed more than"},
	{"a node of 300 MB", func(t *testing.T) string {
		t.Helper()
		large := members(100, bytes.Repeat([]byte(comment), 4000))
		return with(t, map[string]content{
			node + "iptables-nft-save.txt.gz": large, node + "iptables-legacy-save.txt.gz": large,
			node + "ip6tables-legacy-save.txt.gz": large, node + "ipset-save.txt.gz": large,
		})
	}, "the files of node worker-1 are larger than 256 MB together"},
}

// TestHostileSnapshot reads each hostile input in a process of its own: one clear error within the limits.
func TestHostileSnapshot(t *testing.T) {
	plugin := builtPlugin(t)
	for _, tt := range hostile {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr, memory, spent := measured(t, plugin, tt.write(t))
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
