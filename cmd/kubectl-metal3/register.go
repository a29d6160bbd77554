// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
)

// fieldOwner is the name under which the API server records our writes to fields.
const fieldOwner = client.FieldOwner("kubectl-metal3")

// The results of a registration.
const (
	resultCreated   = "created"
	resultUpdated   = "updated"
	resultUnchanged = "unchanged"
)

// registered is a line in the output of "register".
type registered struct {
	view.Metadata `json:"metadata"`
	Result        string   `json:"result"`
	Credentials   string   `json:"credentials"`
	Changes       []string `json:"changes,omitempty"`
	// Host is the host as it is now, or, with --dry-run, as it would be.
	Host *bmov1alpha1.BareMetalHost `json:"host"`
}

func (o *options) registerCommand() *cobra.Command {
	var file string
	var dryRun bool
	command := &cobra.Command{
		Use: "register -f FILE", Short: "Register servers with Metal3, as a list in CSV or YAML has them", Args: cobra.NoArgs,
		Long: "Makes a BareMetalHost for each server of a list, and a Secret with the credentials of its BMC. The list is CSV with a line of\n" +
			"columns, or YAML with a list of maps. Its columns are\n\n" +
			"  name         of the BareMetalHost\n" +
			"  namespace    of the BareMetalHost; that of -n or the context if it is empty\n" +
			"  bmc          address of the BMC, as redfish-virtualmedia://192.0.2.11/redfish/v1/Systems/1\n" +
			"  username     of the BMC\n" +
			"  password     of the BMC; both go into the Secret NAME-bmc\n" +
			"  credentials  name of a Secret that has them already, instead\n" +
			"  mac          MAC address of the card that the server boots from; virtual media do without\n" +
			"  rack, zone   where the server is: its labels rack and datacenter\n" +
			"  labels       more labels: KEY=VALUE in CSV, with blanks between several, and a map in YAML\n" +
			"  disableCertificateVerification  true for a BMC whose certificate is self-signed\n" +
			"  bootMode     UEFI, UEFISecureBoot or legacy; Metal3 takes UEFI if it is empty\n" +
			"  rootDeviceHints.FIELD  which disk gets the image, by each field of spec.rootDeviceHints of a BareMetalHost, as\n" +
			"               rootDeviceHints.deviceName; Metal3 takes /dev/sda if there is none, so servers with NVMe only need one\n\n" +
			"The whole list is checked first, here and by the API server; if a line is wrong, all that is wrong is said and nothing is\n" +
			"written. It may be run again: what is there as it is to be is left alone, and what has another label, boot mode or hint, or no\n" +
			"MAC address yet, is changed. Nothing is removed. A BareMetalHost with another BMC or MAC address is an error. The Secret of a\n" +
			"server is written before its BareMetalHost, and no Secret is read.",
		Example: "  kubectl metal3 register -f servers.csv --dry-run\n  kubectl metal3 register -f servers.yaml -n metal3-system",
		RunE: func(command *cobra.Command, _ []string) error {
			content, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("reading the list of servers, %w", err)
			}
			list, err := parseServers(file, content)
			if err != nil {
				return err
			}
			return o.register(command.Context(), list, dryRun)
		},
	}
	command.Flags().StringVarP(&file, "filename", "f", "", "The list of servers: a file that ends with .csv, .yaml or .yml. Required.")
	command.Flags().BoolVar(&dryRun, "dry-run", false, "Have the API server and its webhooks check everything, and write nothing.")
	_ = command.MarkFlagRequired("filename") // the flag is there
	return o.addTable(command)
}

func (o *options) register(ctx context.Context, list *serverList, dryRun bool) error {
	cluster, err := o.connectToWrite()
	if err != nil {
		return err
	}
	namespace, _, err := o.management.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return fmt.Errorf("the kubeconfig of the management cluster: %w", err)
	}
	hosts := &bmov1alpha1.BareMetalHostList{}
	err = cluster.List(ctx, hosts)
	switch missing := (view.Missing{Cluster: "management", Group: bmov1alpha1.GroupVersion.Group, Resource: "baremetalhosts"}); {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s, and the servers of the list are compared with those that there are", missing)
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		missing.NotInstalled = true
		return errors.New(missing.String())
	case err != nil:
		return fmt.Errorf("listing baremetalhosts in the management cluster, %w", err)
	}
	registrations := list.check(namespace, hosts.Items)
	// The dry run finds what the API server and its webhooks refuse before anything is written.
	var done []registered
	for _, registration := range registrations {
		if registration.wrong {
			continue
		}
		result, err := registration.write(ctx, cluster, client.DryRunAll)
		if err != nil {
			list.wrong(registration.position, "%v", err)
		}
		done = append(done, result)
	}
	if lines := list.lines(); len(lines) > 0 {
		for _, line := range lines {
			fmt.Fprintln(o.ErrOut, view.Shown(line))
		}
		return fmt.Errorf("%s has errors, and nothing was written", list.file)
	}
	if dryRun {
		defer fmt.Fprintln(o.ErrOut, "this is what would be done; nothing was written")
		return o.printRegistered(done)
	}
	done = nil
	for _, registration := range registrations {
		result, err := registration.write(ctx, cluster)
		if err != nil {
			return fmt.Errorf("%s:%d: %w: %d of %d servers are registered, run this again to go on", list.file, registration.line, err, len(done),
				len(registrations))
		}
		done = append(done, result)
	}
	return o.printRegistered(done)
}

func (o *options) printRegistered(done []registered) error {
	list := listing{kind: "Registration", about: bmov1alpha1.GroupVersion.WithKind("BareMetalHost"),
		columns: columns("Namespace", "Name", "Result", "Credentials", "Changes")}
	for _, result := range done {
		list.add(result, result.Namespace, result.Name, result.Result, result.Credentials, strings.Join(result.Changes, ", "))
	}
	return o.print(list)
}

// write makes the Secret before the host, so that a host never waits for credentials. After a kill in between, it can
// be run again.
func (r *registration) write(ctx context.Context, cluster client.Client, dryRun ...dryRunOption) (registered, error) {
	host := r.host.DeepCopy()
	done := registered{Metadata: view.MetadataOf(host), Credentials: host.Spec.BMC.CredentialsName, Changes: r.changes,
		Result: resultUnchanged}
	if r.password != "" {
		version, err := r.writeSecret(ctx, cluster, dryRun)
		if err != nil {
			return done, fmt.Errorf("writing Secret %s/%s: %s", host.Namespace, done.Credentials, refusal(err))
		}
		// The dry run returned the version of the existing Secret, before it is written.
		if len(dryRun) > 0 {
			r.secretVersion = version
		} else if r.existing != nil && version != r.secretVersion {
			done.Result, done.Changes = resultUpdated, append(done.Changes, "Secret "+done.Credentials)
		}
	}
	var err error
	switch {
	case r.existing == nil:
		done.Result = resultCreated
		options := []client.CreateOption{fieldOwner}
		for _, option := range dryRun {
			options = append(options, option)
		}
		err = cluster.Create(ctx, host, options...)
	case len(r.changes) > 0:
		done.Result = resultUpdated
		err = cluster.Patch(ctx, host, client.MergeFromWithOptions(r.existing, client.MergeFromWithOptimisticLock{}), patchOptions(dryRun)...)
	}
	host.ManagedFields = nil
	done.Host = host
	if err != nil {
		return done, fmt.Errorf("writing BareMetalHost %s: %s", nameOf(host), refusal(err))
	}
	return done, nil
}

// dryRunOption is the interface that client.DryRunAll implements.
type dryRunOption interface {
	client.CreateOption
	client.PatchOption
}

func patchOptions(dryRun []dryRunOption) []client.PatchOption {
	options := []client.PatchOption{fieldOwner}
	for _, option := range dryRun {
		options = append(options, option)
	}
	return options
}

// writeSecret applies the Secret and returns its version. It needs no right to read the Secret: the answer has only
// metadata.
func (r *registration) writeSecret(ctx context.Context, cluster client.Client, dryRun []dryRunOption) (version string, err error) {
	kind := metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Secret"}
	name := metav1.ObjectMeta{Namespace: r.host.Namespace, Name: r.host.Spec.BMC.CredentialsName}
	content, err := json.Marshal(map[string]any{
		"apiVersion": kind.APIVersion, "kind": kind.Kind,
		"metadata": map[string]string{"namespace": name.Namespace, "name": name.Name},
		"data":     map[string][]byte{"username": []byte(r.username), "password": []byte(r.password)},
	})
	if err != nil {
		return "", err
	}
	secret := &metav1.PartialObjectMetadata{TypeMeta: kind, ObjectMeta: name}
	err = cluster.Patch(ctx, secret, client.RawPatch(types.ApplyPatchType, content), patchOptions(dryRun)...)
	return secret.ResourceVersion, err
}

// refusal returns the text of an API server's error. For a conflict it adds what to do.
func refusal(err error) string {
	text := view.Plain(err.Error())
	if apierrors.IsConflict(err) {
		text += ": another has written it; make the list the same, or have it changed there"
	}
	return text
}
