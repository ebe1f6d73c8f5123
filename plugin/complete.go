// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Shell completion. kubectl asks an executable kubectl_complete-svcproxy, which runs: kubectl svcproxy __complete "$@".

// completionTimeout bounds what a person waits for after TAB.
const completionTimeout = 3 * time.Second

// objects returns the cluster's objects for completion; nil where they cannot be had, as completion has nobody to complain to.
func (o *targetOptions) objects(ctx context.Context, s *shared) *snapshot.Cluster {
	ns, err := s.namespace()
	if err != nil {
		return nil
	}
	c := *o
	c.helper = helperOptions{none: true, timeout: completionTimeout}
	sc, err := c.open(s, ns)
	if err != nil {
		return nil
	}
	sc.progress = newProgress(io.Discard, s.getenv)
	if err := sc.readObjects(ctx, ""); err != nil {
		return nil
	}
	return sc.objects
}

// completeServices completes up to limit Services (0: any number).
func (o *targetOptions) completeServices(s *shared, limit int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ns, err := s.namespace()
		if err != nil || limit > 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		objects := o.objects(cmd.Context(), s)
		if objects == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, svc := range objects.Services {
			if svc.Namespace == ns && !slices.Contains(args, svc.Name) {
				names = append(names, svc.Name)
			}
		}
		slices.Sort(names)
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func (o *targetOptions) completeNodes(s *shared) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if o.snapshot != "" {
			if snap, err := snapshot.Open(o.snapshot); err == nil {
				return snap.NodeNames(), cobra.ShellCompDirectiveNoFileComp
			}
		} else if objects := o.objects(cmd.Context(), s); objects != nil {
			return nodeNames(objects), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNamespaces completes -n from where the command reads.
func (s *shared) completeNamespaces(root *cobra.Command) {
	_ = root.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		o := &targetOptions{}
		if flag := cmd.Flags().Lookup("snapshot"); flag != nil {
			o.snapshot = flag.Value.String()
		}
		objects := o.objects(cmd.Context(), s)
		if objects == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, svc := range objects.Services {
			names = append(names, svc.Namespace)
		}
		slices.Sort(names)
		return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
	})
}
