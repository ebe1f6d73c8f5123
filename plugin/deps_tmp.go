package plugin

import (
	_ "github.com/olekukonko/tablewriter"
	_ "github.com/spf13/cobra"
	_ "k8s.io/cli-runtime/pkg/genericclioptions"
	_ "k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/cli-runtime/pkg/printers"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	_ "sigs.k8s.io/yaml"
)
