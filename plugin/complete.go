// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Shell completion. kubectl asks an executable kubectl_complete-svcproxy, which runs: kubectl svcproxy __complete "$@".

// objects returns the cluster's objects for completion; nil where they cannot be had, as completion has nobody to complain to.
func (o *targetOptions) objects(cmd *cobra.Command) *snapshot.Cluster {
	if o.snapshot == "" {
		return nil
	}
	source, _, err := o.open()
	if err != nil {
		return nil
	}
	objects, err := source.Objects(cmd.Context())
	if err != nil {
		return nil
	}
	return objects
}

// completeServices completes up to limit Services (0: any number).
func (o *targetOptions) completeServices(s *shared, limit int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		objects := o.objects(cmd)
		ns, err := s.namespace()
		if objects == nil || err != nil || limit > 0 && len(args) >= limit {
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

func (o *targetOptions) completeNodes(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if o.snapshot != "" {
		if _, inspector, err := o.open(); err == nil {
			if names, err := inspector.Nodes(cmd.Context()); err == nil {
				return names, cobra.ShellCompDirectiveNoFileComp
			}
		}
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeNamespaces completes -n from the snapshot that the command was given.
func (s *shared) completeNamespaces(root *cobra.Command) {
	_ = root.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		flag := cmd.Flags().Lookup("snapshot")
		if flag == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		o := &targetOptions{snapshot: flag.Value.String()}
		objects := o.objects(cmd)
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
