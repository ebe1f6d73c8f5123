// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// dumpOptions are those of the command dump.
type dumpOptions struct {
	*shared
	targetOptions
	output string
}

func newDumpCommand(s *shared) *cobra.Command {
	o := &dumpOptions{shared: s}
	cmd := &cobra.Command{
		Use:   "dump --node NODE… -o FILE.tar.gz",
		Short: "Write a snapshot of nodes and of the cluster's Services, to be looked at without the cluster",
		Long: `Write a snapshot: what the API says of Services, EndpointSlices, Nodes and Pods, and what the kernels of nodes and their kube-proxy
hold. Every command reads it by --snapshot. Its files are what standard tools print (docs/snapshots.md).

It holds names, addresses and firewall rules. What judging needs none of is left out: the Pods' environment, volumes and
commands, annotations, managed fields.

Exit codes: 0 all was read, 3 a node could not be read (the others are in the file).`,
		Example: `  # Before anybody restarts anything
  kubectl svcproxy dump --node worker-2 -o worker-2.tar.gz

  # All nodes, to another machine
  kubectl svcproxy dump --all-nodes -o - | ssh me@laptop 'cat > dump.tar.gz'`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("dump takes no argument, and got %s: it writes all Services", shorten(args))
			}
			if err := o.Validate(); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	o.addFlags(cmd, s)
	_ = cmd.Flags().MarkHidden("snapshot")
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "File to write, FILE.tar.gz or FILE.tgz; - is standard output")
	_ = cmd.MarkFlagFilename("output", "tar.gz", "tgz")
	return cmd
}

// Validate checks what the flags say together.
func (o *dumpOptions) Validate() error {
	switch {
	case o.snapshot != "":
		return usagef("dump reads a cluster, and --snapshot is none")
	case o.output == "":
		return usagef("dump needs a file to write: give -o FILE.tar.gz, or -o - for standard output")
	case o.output != "-" && !strings.HasSuffix(o.output, ".tar.gz") && !strings.HasSuffix(o.output, ".tgz"):
		return usagef("-o %q: dump writes a gzipped tar archive: give FILE.tar.gz or FILE.tgz, or - for standard output", o.output)
	case !o.chosen():
		return usagef("dump needs to know which nodes: give --node NODE, -l SELECTOR, --all-nodes or --local")
	}
	return o.validate()
}

// Run reads and writes.
func (o *dumpOptions) Run(ctx context.Context) error {
	return o.run(ctx, o.shared, "", o.dump)
}

func (o *dumpOptions) dump(ctx context.Context, sc *scene) error {
	if err := sc.readObjects(ctx, o.what()); err != nil {
		return err
	}
	nodes, err := o.choose(sc, nil)
	if err != nil {
		return err
	}
	if done, err := o.helper.dry(o.shared, sc, nodes); done || err != nil {
		return err
	}
	if err := sc.readPods(ctx, cluster.Pods{All: true}); err != nil {
		return err
	}
	sc.files = nil // also what is there only for people
	files, errs := sc.inspectAll(ctx, nodes)
	if err := ctx.Err(); err != nil {
		return err
	}
	var read []*snapshot.Node
	for i, n := range files {
		if errs[i] != nil {
			fmt.Fprintf(o.ErrOut, "error: node %s was not read: %s\n", nodes[i], strings.Join(strings.Fields(errs[i].Error()), " "))
			continue
		}
		read = append(read, n)
		unread, err := n.Unread()
		if err != nil {
			return err
		}
		for name, why := range unread {
			sc.progress.note("%s: %s was not read: %s", n.Name, name, why)
		}
	}
	if len(read) == 0 {
		return codeError{ExitNotInspected, errors.New("no node was read, so nothing is written")}
	}
	m := snapshot.Meta{Version: snapshot.Version, CreatedAt: time.Now().UTC().Truncate(time.Second), Tool: "kubectl-svcproxy " + readBuildInfo().Version}
	var archive bytes.Buffer
	if err := snapshot.Write(&archive, m, cluster.Lean(sc.objects), read); err != nil {
		return err
	}
	size := archive.Len()
	if err := writeWhole(o.output, o.Out, &archive); err != nil {
		return usagef("cannot write the snapshot: %w", err)
	}
	if o.output != "-" {
		fmt.Fprintf(o.Out, "%s: %d of %d nodes, %d Services, %d bytes\n", o.output, len(read), len(nodes), len(sc.objects.Services), size)
	}
	if len(read) < len(nodes) {
		return codeError{code: ExitNotInspected}
	}
	return nil
}

// writeWhole writes a file, or leaves what was there: half a snapshot must not be found later. "-" is out.
func writeWhole(name string, out io.Writer, data io.Reader) error {
	if name == "-" {
		_, err := io.Copy(out, data)
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return err
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
	return err
}
