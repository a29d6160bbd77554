// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/shell"
)

func (o *options) proposeTypesCommand() *cobra.Command {
	var namespace, file string
	command := &cobra.Command{
		Use: "propose-types", Short: "Write NodeTypes for the inspected servers that match none, as YAML", Args: cobra.NoArgs,
		Long: "Writes entries for spec.metal3.nodeTypes of a NodeProvider, as a patch for kubectl: a type for each kind of hardware among the\n" +
			"servers that match no NodeType, with the least cpu and memory that Metal3 has found in them, and with labels that these servers\n" +
			"have and no others. Where there are no such labels, a comment has the command that gives them. Metal3's inspection does not find\n" +
			"accelerators: add them. Servers that others use are left out.\n\n" +
			"With -f, writes the devices of a NodeType instead, as DRA drivers have published them on a node of that type. The file has what\n" +
			"kubectl get resourceslices --field-selector spec.nodeName=NODE -o yaml prints.",
		Example: "  kubectl metal3 propose-types\n  kubectl metal3 propose-types --hosts-in metal3-system\n" +
			"  kubectl metal3 propose-types -f resourceslices.yaml",
		RunE: func(command *cobra.Command, _ []string) error {
			if file != "" {
				return o.proposeDevices(file)
			}
			o.scope.Hosts = namespace
			fleet, err := o.fleet(command.Context())
			if err != nil {
				return err
			}
			for _, missing := range fleet.Missing() {
				if missing.Resource == "nodetypes" || missing.Resource == "nodeproviders" {
					return fmt.Errorf("%s: without them every server seems to match none", missing)
				}
			}
			proposed, uninspected := fleet.ProposedTypes()
			var namespaces []string
			proposed = slices.DeleteFunc(proposed, func(proposal view.ProposedType) bool {
				if namespace != "" && proposal.Namespace != namespace {
					return true
				}
				if !slices.Contains(namespaces, proposal.Namespace) {
					namespaces = append(namespaces, proposal.Namespace)
				}
				return false
			})
			if len(namespaces) > 1 {
				return fmt.Errorf("servers in the namespaces %s match no NodeType, and have a NodeProvider each: choose one by --hosts-in",
					strings.Join(namespaces, ", "))
			}
			if len(proposed) == 0 {
				fmt.Fprintln(o.ErrOut, "every server that has been inspected matches a NodeType, or is used by others")
			} else {
				printProposed(o.Out, proposed)
			}
			if len(uninspected) > 0 {
				fmt.Fprintf(o.ErrOut, "not inspected, and not proposed for: %s\n", strings.Join(uninspected, ", "))
			}
			return nil
		},
	}
	command.Flags().StringVar(&namespace, "hosts-in", "", "The namespace of the servers. Empty: there is only one with servers that match no "+
		"NodeType.")
	command.Flags().StringVarP(&file, "filename", "f", "", "A file with the ResourceSlices of one node, - for the standard input: write its "+
		"devices, and no NodeTypes.")
	return command
}

// maxSlices is the largest size of a file with the ResourceSlices of a node, in bytes.
const maxSlices = 16 << 20

func (o *options) proposeDevices(name string) error {
	from := o.In
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("reading the ResourceSlices, %w", err)
		}
		defer file.Close()
		from = file
	}
	content, err := io.ReadAll(io.LimitReader(from, maxSlices+1))
	if err == nil && len(content) > maxSlices {
		err = fmt.Errorf("has more than %d MiB: choose the node by --field-selector spec.nodeName=NODE", maxSlices>>20)
	}
	list := &resourcev1.ResourceSliceList{}
	if err == nil {
		err = yaml.Unmarshal(content, list)
	}
	if err != nil {
		return fmt.Errorf("reading the ResourceSlices, %w", err)
	}
	for n, slice := range list.Items {
		if version := resourcev1.SchemeGroupVersion.String(); slice.APIVersion != version || slice.Kind != "ResourceSlice" {
			return fmt.Errorf("items[%d] of the ResourceSlices is a %s of %s: get resourceslices.v1.resource.k8s.io, which are of %s", n,
				view.Shown(slice.Kind), view.Shown(slice.APIVersion), version)
		}
	}
	view.PlainAll(list)
	proposed, err := view.ProposedDevices(list.Items)
	if err != nil {
		return err
	}
	written, err := yaml.Marshal(map[string]any{"devices": proposed})
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "# Add this to a type of spec.metal3.nodeTypes. Remove what is not the same on all of its servers.\n%s", written)
	return nil
}

// printProposed writes the NodeTypes for the servers of a namespace, as a JSON patch that adds them to the
// NodeProvider's types. kubectl apply --server-side would add them too, but would remove what kubectl apply wrote
// before.
func printProposed(out io.Writer, proposed []view.ProposedType) {
	namespace, providers := proposed[0].Namespace, proposed[0].Providers
	indent := "    "
	switch {
	case len(providers) == 0:
		fmt.Fprintf(out, "# No NodeProvider has the servers in %s. This makes one:\n#   kubectl apply -f FILE\n", namespace)
		fmt.Fprintf(out, "apiVersion: karpenter.metal3.io/v1alpha1\nkind: NodeProvider\nmetadata:\n  name: %s\nspec:\n  metal3:\n",
			namespace)
		fmt.Fprintf(out, "    clusterRef:\n      namespace: %s\n    nodeTypes:\n", namespace)
		indent = "        "
	default:
		if len(providers) > 1 {
			fmt.Fprintf(out, "# %d NodeProviders have the servers in %s. This is for the first.\n", len(providers), namespace)
		}
		fmt.Fprintf(out, "# Add these values to spec.metal3.nodeTypes in the file that NodeProvider %s is applied from. Or add them "+
			"now, which\n# lasts until that file is applied again:\n", providers[0].Name)
		fmt.Fprintf(out, "#   %s\n", shell.Command("kubectl patch nodeproviders.karpenter.metal3.io %s --type=json --patch-file=FILE",
			providers[0].Name))
		if len(providers[0].Spec.Metal3.NodeTypes) == 0 {
			fmt.Fprintf(out, "- op: add\n  path: /spec/metal3/nodeTypes\n  value: []\n")
		}
	}
	for _, proposal := range proposed {
		var entry strings.Builder
		printType(&entry, proposal)
		if len(providers) == 0 {
			fmt.Fprint(out, "      -\n")
		} else {
			fmt.Fprint(out, "- op: add\n  path: /spec/metal3/nodeTypes/-\n  value:\n")
		}
		for line := range strings.Lines(entry.String()) {
			fmt.Fprint(out, indent, line)
		}
	}
}

func printType(out io.Writer, proposal view.ProposedType) {
	fmt.Fprintf(out, "# %s: %s\n", proposal.Hardware, strings.Join(proposal.Servers, ", "))
	if proposal.Unlabelled {
		fmt.Fprintf(out, "# No label tells these servers from others in %s. Give them one:\n", proposal.Namespace)
		fmt.Fprintf(out, "#   %s\n", shell.Command("kubectl label baremetalhosts -n %s",
			slices.Concat([]string{proposal.Namespace}, proposal.Servers, pairs(proposal.Labels))...))
	}
	if len(proposal.Shared) > 0 {
		fmt.Fprintf(out, "# Other labels that they have in common: %s\n", strings.Join(pairs(proposal.Shared), " "))
	}
	fmt.Fprintf(out, "name: %s\nresources:\n  cpu: %q\n  memory: %q\n", proposal.Name, proposal.CPU, proposal.Memory)
	fmt.Fprintf(out, "  # Inspection does not find accelerators. If there are any, say how many: nvidia.com/gpu: \"8\"\n")
	fmt.Fprintf(out, "bareMetalHosts:\n  selector:\n    matchLabels:\n")
	for _, key := range slices.Sorted(maps.Keys(proposal.Labels)) {
		fmt.Fprintf(out, "      %q: %q\n", key, proposal.Labels[key])
	}
}

func pairs(labels map[string]string) (all []string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, key+"="+labels[key])
	}
	return all
}
