// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// dumpOptions are the flags of the command dump.
type dumpOptions struct {
	nodes  nodeFlags
	helper helperFlags
	output string
	from   string
	ends   endFlags
	script bool
}

func newDumpCommand(env *environment) *cobra.Command {
	o := &dumpOptions{}
	cmd := &cobra.Command{
		Use:        "dump {--node NODE… | SERVICE --from pod/NAME --end-to-end | --script} -o FILE.tar.gz",
		SuggestFor: []string{"save", "capture", "snapshot", "export"},
		Short:      "Write a snapshot of nodes and of the cluster's Services, to inspect without the cluster",
		Long: `Write a snapshot: the Services, EndpointSlices, Nodes and Pods of the API, and
the rules, routes and settings of the nodes' kernels and kube-proxies. Every
command reads it with --snapshot. Its files are the output of standard tools
(docs/snapshots.md).

With SERVICE, --from pod/NAME and --end-to-end, the snapshot contains what
"trace" reads with these: the client's node and the endpoints' nodes, and the
network namespaces of the pods at both ends.

--script prints a script for a POSIX shell that writes the same files with the
node's own tools. It is for nodes on which no pod can be created and no program
can be installed; no cluster is contacted.

A snapshot contains names, addresses and firewall rules. What is not needed to
judge is left out: the Pods' environment variables, volumes and commands,
annotations, and managed fields.

The exit code is 0 if everything was read, and 3 if a node could not be read (the
other nodes are in the file).`,
		Example: `  # Before anything is restarted
  kubectl svcproxy dump --node worker-2 -o worker-2.tar.gz

  # What trace web --from pod/client --end-to-end reads
  kubectl svcproxy dump web -n shop --from pod/client --end-to-end -o web.tar.gz

  # All nodes, written to another machine
  kubectl svcproxy dump --all-nodes -o - | ssh me@laptop 'cat > dump.tar.gz'

  # Where only a shell can be run: read the script, and run it as root on the node
  kubectl svcproxy dump --script --node worker-2 -o collect.sh`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.script {
				return o.writeScript(env, cmd, args)
			}
			c, err := o.config(env, cmd.Flags(), args)
			if err != nil {
				return err
			}
			return dump(cmd.Context(), env, c)
		},
	}
	o.nodes.add(cmd, env)
	o.helper.add(cmd, env)
	f := cmd.Flags()
	_ = f.MarkHidden("snapshot")
	f.Lookup("node").Usage = "Read this node (repeatable)" // none is chosen, and there is no snapshot to read
	f.StringVarP(&o.output, "output", "o", "", "File to write, FILE.tar.gz or FILE.tgz; - is standard output")
	_ = cmd.MarkFlagFilename("output", "tar.gz", "tgz")
	f.StringVar(&o.from, "from", "", "With --end-to-end: where packets come from: pod/NAME, pod/NAMESPACE/NAME, "+
		"external or an IP address")
	f.BoolVar(&o.script, "script", false, "Print a shell script that collects the files on the node, and read no node")
	o.ends.add(cmd)
	return cmd
}

// dumpConfig is what to dump.
type dumpConfig struct {
	session  run.Config
	podsOnly bool   // print the helper pods, and make none
	output   string // the file's name; "-": standard output

	// Of --end-to-end; nil without it.
	service   *cluster.Reference
	namespace string
	from      string
	ends      endFlags
}

// config completes and validates the options.
func (o *dumpOptions) config(env *environment, flags *pflag.FlagSet, args []string) (c dumpConfig, err error) {
	switch {
	case len(args) > 0 && !o.ends.endToEnd:
		return c, run.Usagef("dump takes no argument, and got %s: --node names a node, and all Services are written",
			run.Shorten(args))
	case len(args) != 1 && o.ends.endToEnd:
		return c, run.Usagef("dump --end-to-end needs one Service, and got %d", len(args))
	case o.from != "" && !o.ends.endToEnd:
		return c, run.Usagef("--from is about --end-to-end: give that, too")
	}
	if err := o.ends.check(o.from, o.helper.local); err != nil {
		return c, err
	}
	if o.ends.endToEnd {
		ref, namespace, err := env.service(args[0])
		if err != nil {
			return c, err
		}
		c.service, c.namespace, c.from, c.ends = &ref, namespace, o.from, o.ends
	}
	chosen := o.ends.endToEnd || len(o.nodes.nodes) > 0 || o.nodes.allNodes || o.nodes.selector != "" || o.helper.local
	switch {
	case o.nodes.snapshot != "":
		return c, run.Usagef("dump reads the nodes of a cluster: it has no --snapshot")
	case o.output == "":
		return c, run.Usagef("dump needs a file to write: give -o FILE.tar.gz, or -o - for standard output")
	case o.output != "-" && !strings.HasSuffix(o.output, ".tar.gz") && !strings.HasSuffix(o.output, ".tgz"):
		return c, run.Usagef("-o %q: dump writes a gzipped tar archive: give FILE.tar.gz or FILE.tgz, or - for "+
			"standard output", o.output)
	case !chosen:
		return c, run.Usagef("dump needs to know which nodes: give --node NODE, -l SELECTOR, --all-nodes or --local")
	}
	if err := checkFile(o.output); err != nil {
		return c, err
	}
	selection, err := o.nodes.selection(flags, &o.helper)
	if err != nil {
		return c, err
	}
	c.session = o.helper.session(env, &o.nodes, selection, "")
	c.podsOnly, c.output = o.helper.podsOnly(), o.output
	return c, nil
}

// dump reads and writes.
func dump(ctx context.Context, env *environment, c dumpConfig) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, nodes, err := openNodes(ctx, c.session)
	if err != nil {
		return err
	}
	defer s.Close()
	var ends *run.Ends
	if c.service != nil {
		if ends, err = c.findEnds(ctx, s, nodes); err != nil {
			return err
		}
		nodes = ends.Nodes()
	}
	if c.podsOnly {
		return printPods(env, s, nodes)
	}
	if err := s.ReadPods(ctx, cluster.Pods{All: true}); err != nil {
		return err
	}
	d := &dumping{session: s, env: env}
	defer d.remove()
	if ends == nil {
		err = s.EachNode(ctx, nodes, d.node)
	} else {
		err = s.EachEnd(ctx, ends, func(pod, why string) {
			s.Progress.Note("pod %s was not read: %s", pod, safetext.Line(why, maxError))
		}, d.node)
	}
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.nodes == 0 {
		return run.NotInspected(errors.New("no node was read, so nothing is written"))
	}
	size, err := d.finish(c.output, env.out)
	if err != nil {
		return run.Usagef("cannot write the snapshot: %w", err)
	}
	if c.output != "-" {
		read := plaintext.Plural(len(nodes), "node")
		if d.nodes < len(nodes) {
			read = fmt.Sprintf("%d of %s", d.nodes, read)
		}
		env.out.Line("%s: %s, %s, %d bytes", c.output, read, plaintext.Plural(len(s.Objects.Services), "Service"), size)
	}
	if d.nodes < len(nodes) {
		return &run.ExitError{Code: run.ExitNotInspected}
	}
	return nil
}

// dumping is a snapshot that is being written, to a file of its own until it is whole: half a snapshot must not be
// found later, and all nodes may be too much for the memory.
type dumping struct {
	session *run.Session
	env     *environment

	file  *os.File // nil until there is a node
	out   *snapshot.Writer
	nodes int
}

// node adds a node, or says why it was not read.
func (d *dumping) node(name string, files *snapshot.Node, err error) error {
	if err == nil {
		err = snapshot.CheckNodeName(name)
	}
	if err == nil {
		err = files.Check()
	}
	var unread map[string]string
	if err == nil {
		unread, err = files.Unread()
	}
	if err != nil {
		d.env.errOut.Sentence("error: node %s was not read: %s", name, safetext.Line(snapshot.Reason(err), maxError))
		return nil
	}
	for file, why := range unread {
		d.session.Progress.Note("%s: %s was not read: %s", name, file, why)
	}
	if d.out == nil {
		if err := d.begin(); err != nil {
			return run.Usagef("cannot write the snapshot: %w", err)
		}
	}
	if err := d.out.Node(files); err != nil {
		return run.Usagef("cannot write the snapshot: %w", err)
	}
	d.nodes++
	return nil
}

// begin writes the cluster's objects.
func (d *dumping) begin() (err error) {
	if d.file, err = os.CreateTemp("", "svcproxy-dump-*.tar.gz"); err != nil {
		return err
	}
	m := snapshot.Meta{
		Version: snapshot.Version, CreatedAt: time.Now().UTC().Truncate(time.Second),
		Tool: "kubectl-svcproxy " + readBuildInfo().Version,
	}
	d.out, err = snapshot.NewWriter(d.file, m, cluster.Lean(d.session.Objects))
	return err
}

// finish ends the archive, and puts it where it is wanted. size is in bytes.
func (d *dumping) finish(name string, out *terminal.Stream) (size int64, err error) {
	if err := d.out.Close(); err != nil {
		return 0, err
	}
	if size, err = d.file.Seek(0, io.SeekEnd); err != nil {
		return 0, err
	}
	if _, err = d.file.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	return size, writeWhole(name, out, d.file)
}

// remove removes the file.
func (d *dumping) remove() {
	if d.file != nil {
		_ = d.file.Close()
		_ = os.Remove(d.file.Name())
	}
}

// writeWhole writes a file, or leaves what was there: half a snapshot must not be found later. "-" is out.
func writeWhole(name string, out *terminal.Stream, data io.Reader) error {
	if name == "-" {
		return out.Archive(data)
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return ofFile(name, err)
	}
	_, err = io.Copy(f, data)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return ofFile(name, err)
}

// ofFile makes an error about a file in its place one about the file itself, whose name was given.
func ofFile(name string, err error) error {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("%s: %w", name, path.Err)
	}
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return fmt.Errorf("%s: %w", name, link.Err)
	}
	return err
}

// checkFile says why a file that is given by -o cannot be written, where that shows before there is anything to write.
func checkFile(name string) error {
	switch {
	case name == "-" || name == "":
		return nil
	case isDirectory(name):
		return run.Usagef("-o %q is a directory: give the name of a file", name)
	case !isDirectory(filepath.Dir(name)):
		return run.Usagef("-o %q: there is no directory %s", name, filepath.Dir(name))
	}
	return nil
}

func isDirectory(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}
