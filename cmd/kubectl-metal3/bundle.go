// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/version"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterapis "sigs.k8s.io/karpenter/pkg/apis"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/preflight"
)

// ourPods selects the pods and Deployments of our charts by the label that the charts set.
const ourPods = "app.kubernetes.io/part-of=karpenter-metal3"

// Limits of a bundle, in bytes. A tenant controls its own API server, which may answer without an end.
const (
	maxLog    = 8 << 20
	maxEvents = 16 << 20
	maxBundle = 512 << 20
	// maxName limits each part of the name of a file: file systems allow 255 bytes.
	maxName = 75
)

func (o *options) supportBundleCommand() *cobra.Command {
	var file, selector string
	var lines int64
	command := &cobra.Command{
		Use: "support-bundle", Short: "Write what a maintainer would ask for to one file", Args: cobra.NoArgs,
		Long: "Writes what a maintainer would ask for to a file: what 'snapshot' has, the versions of the API server, of definitions and of\n" +
			"our programs, their Deployments, pods and logs, events of servers and of our kinds, and what 'manager preflight' finds. With\n" +
			"--tenant-kubeconfig or --tenant-context also that of the tenant cluster.\n\n" +
			"It reads no Secret. User data, environments, values of properties and flags that are not ours, probes, hooks and copies of\n" +
			"objects in annotations are left out. In all other text, what is called a password or the like, credentials in URLs and what\n" +
			"has the form of a known token or private key are xxxxx. A secret without such a name or form stays, and so do names of tenants,\n" +
			"servers and pods and addresses: look through it before you give it away. What you may not read is said in its README.txt.",
		Example: "  kubectl metal3 support-bundle\n" +
			"  kubectl metal3 support-bundle -o bundle.tar.gz --tenant-kubeconfig acme.kubeconfig --tail 10000",
		RunE: func(command *cobra.Command, _ []string) error {
			if o.snapshot != "" {
				return errors.New("--snapshot is set, and this command reads clusters: leave it out")
			}
			if lines <= 0 {
				return fmt.Errorf("--tail is %d: it must be 1 or more", lines)
			}
			pods, err := labels.Parse(selector)
			if err != nil {
				return fmt.Errorf("--selector is %q: %w", selector, err)
			}
			began := time.Now().UTC()
			file = cmp.Or(file, "karpenter-metal3-"+began.Format("20060102-150405")+".tar.gz")
			b := &bundle{options: o, pods: pods, lines: lines, began: began}
			if err := b.collect(command.Context()); err != nil {
				return err
			}
			if err := b.write(file); err != nil {
				return fmt.Errorf("writing the bundle, %w", err)
			}
			fmt.Fprintf(o.Out, "wrote %s with %d files. Look through it before you give it away\n", file, len(b.files))
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVarP(&file, "output", "o", "", "The file. Empty: karpenter-metal3-TIME.tar.gz here.")
	flags.StringVar(&selector, "selector", ourPods, "Labels of our Deployments and pods.")
	flags.Int64Var(&lines, "tail", 5000, "How many lines of each log, the last ones.")
	return command
}

type bundle struct {
	*options
	pods  labels.Selector
	lines int64
	began time.Time
	files []bundleFile
	size  int
	// missing lists what could not be read, one sentence each.
	missing []string
}

type bundleFile struct {
	name    string
	content []byte
}

type place struct {
	name   string
	client client.Client
	kube   kubernetes.Interface
}

// text adds a text file, without the secrets that properties.Redact finds in it.
func (b *bundle) text(name, content string) {
	b.add(name, []byte(view.PlainLines(properties.Redact(content))))
}

// add adds a file, unless the bundle would become too large.
func (b *bundle) add(name string, content []byte) {
	if b.size+len(content) > maxBundle {
		b.missing = append(b.missing, fmt.Sprintf("%s: left out, as the bundle would have more than %d MiB", name, maxBundle>>20))
		return
	}
	b.size += len(content)
	b.files = append(b.files, bundleFile{name, content})
}

// strange matches characters that names of objects do not have, and dots at the start that have a meaning in a path.
var strange = regexp.MustCompile(`[^A-Za-z0-9.-]|^\.+`)

// fileName makes the name of a file from names that come from an API server. It replaces strange characters and keeps
// a valid name of Kubernetes.
func fileName(names ...string) string {
	for i, name := range names {
		name = name[:min(len(name), maxName)]
		names[i] = strange.ReplaceAllString(name, "-")
	}
	return strings.Join(names, "_")
}

// object adds a YAML file, without the secrets that view.Redacted finds in it.
func (b *bundle) object(name string, object any) {
	value, err := view.Redacted(object)
	var content []byte
	if err == nil {
		content, err = yaml.Marshal(value)
	}
	if err != nil {
		b.miss(name, err)
		return
	}
	b.add(name, content)
}

func (b *bundle) miss(what string, err error) {
	b.missing = append(b.missing, fmt.Sprintf("%s: %s", what, view.Plain(err.Error())))
}

func (b *bundle) collect(ctx context.Context) error {
	management, err := b.place("management", b.management)
	if err != nil {
		return err
	}
	places := []place{management}
	var readers []client.Reader
	tenants, err := b.tenantFlags()
	if err != nil {
		return err
	}
	for i, flags := range tenants {
		name := "tenant"
		if i > 0 {
			name = fmt.Sprint("tenant-", i+1)
		}
		tenant, err := b.place(name, flags)
		if err != nil {
			return err
		}
		places, readers = append(places, tenant), append(readers, tenant.client)
	}
	snapshot, err := view.Read(ctx, management.client, readers, b.reads(), metav1.NewTime(b.began))
	if err != nil {
		return err
	}
	snapshot.ReadChecks(ctx, management.client)
	for _, missing := range snapshot.Missing {
		b.missing = append(b.missing, missing.String())
	}
	var saved, checks bytes.Buffer
	if err := snapshot.Save(&saved); err != nil {
		return err
	}
	b.add("snapshot.json", saved.Bytes())
	cluster := &preflight.Cluster{Reader: management.client, Discovery: management.kube.Discovery(), Clock: clock.RealClock{}}
	if err := preflight.Print(&checks, cluster.Everything(ctx, preflight.Outside{})); err != nil {
		return err
	}
	b.text("management/preflight.txt", checks.String())
	for _, place := range places {
		b.versions(ctx, place)
		b.programs(ctx, place)
		b.events(ctx, place)
	}
	return ctx.Err()
}

func (b *bundle) place(name string, flags *genericclioptions.ConfigFlags) (place, error) {
	what := name + " cluster"
	config, err := restConfig(flags, what)
	if err != nil {
		return place{}, err
	}
	source := place{name: name}
	if source.client, err = b.connect(flags, what); err != nil {
		return place{}, err
	}
	if source.kube, err = kubernetes.NewForConfig(config); err != nil {
		return place{}, fmt.Errorf("reaching the %s, %w", what, err)
	}
	return source, nil
}

// groups are the API groups whose definitions and events are collected.
var groups = []string{v1alpha1.Group, bmov1alpha1.GroupVersion.Group, karpenterapis.Group, "ironic.metal3.io"}

// definition is the part of a CRD that the bundle has.
type definition struct {
	Name        string            `json:"name"`
	Versions    []any             `json:"versions"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Generation  int64             `json:"generation"`
}

func (b *bundle) versions(ctx context.Context, from place) {
	found := map[string]any{"plugin": version.Get()}
	if server, err := from.kube.Discovery().ServerVersion(); err != nil {
		b.miss("the version of the "+from.name+" cluster", err)
	} else {
		found["server"] = server
	}
	crds := &unstructured.UnstructuredList{}
	crds.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinitionList"})
	if err := from.client.List(ctx, crds); err != nil {
		b.miss("customresourcedefinitions in the "+from.name+" cluster", err)
	}
	var definitions []definition
	for i := range crds.Items {
		crd := &crds.Items[i]
		if group, _, _ := unstructured.NestedString(crd.Object, "spec", "group"); !slices.Contains(groups, group) {
			continue
		}
		definition := definition{Name: crd.GetName(), Labels: crd.GetLabels(), Annotations: crd.GetAnnotations(), Generation: crd.GetGeneration()}
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		for _, version := range versions {
			if fields, isMap := version.(map[string]any); isMap {
				definition.Versions = append(definition.Versions,
					map[string]any{"name": fields["name"], "served": fields["served"], "storage": fields["storage"]})
			}
		}
		definitions = append(definitions, definition)
	}
	found["definitions"] = definitions
	b.object(from.name+"/versions.yaml", found)
}

// programs collects our Deployments, our pods and their logs.
func (b *bundle) programs(ctx context.Context, from place) {
	namespace := client.InNamespace(*b.management.Namespace)
	deployments, pods := &appsv1.DeploymentList{}, &corev1.PodList{}
	if err := from.client.List(ctx, deployments, namespace, client.MatchingLabelsSelector{Selector: b.pods}); err != nil {
		b.miss("deployments.apps in the "+from.name+" cluster", err)
	} else {
		for i := range deployments.Items {
			trimPodSpec(&deployments.Items[i].Spec.Template.Spec)
			deployments.Items[i].ManagedFields = nil
		}
		b.object(from.name+"/deployments.yaml", deployments)
	}
	if err := from.client.List(ctx, pods, namespace, client.MatchingLabelsSelector{Selector: b.pods}); err != nil {
		b.miss("pods in the "+from.name+" cluster, and their logs", err)
		return
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		trimPodSpec(&pod.Spec)
		pod.ManagedFields = nil
		for _, container := range pod.Status.ContainerStatuses {
			b.log(ctx, from, pod, container.Name, false)
			if container.RestartCount > 0 {
				b.log(ctx, from, pod, container.Name, true)
			}
		}
	}
	if len(pods.Items) == 0 {
		b.missing = append(b.missing, fmt.Sprintf("logs of our programs in the %s cluster: no pod has the labels %s", from.name, b.pods))
	}
	b.object(from.name+"/pods.yaml", pods)
}

// shownFlags are the flags of our programs whose values the bundle shows.
var shownFlags = sets.New(strings.Fields(`batch-idle-duration batch-max-duration cert-dir cert-rotation cert-secret claim-timeout
	certificate-authority link max-readers page-bind-address server
	client-ca-file client-names controllers cpu-requests
	disable-cluster-state-observability enable-http2 ephemeral-storage fault-toleration feature-gates gang-idle-duration
	health-probe-bind-address hooks
	ignore-dra-requests
	kube-api-burst kube-api-qps kube-context kubeconfig launch-timeout leader-elect leader-elect-lease-duration leader-elect-renew-deadline
	leader-elect-retry-period leader-election-namespace logging-format management-kube-api-burst management-kube-api-qps
	management-kube-context management-kubeconfig max-requests-in-flight metrics-bind-address metrics-secure min-values-policy namespace
	network-endpoint network-endpoint-credentials pods-per-node pprof-bind-address preference-policy provisioning-deadline
	reboot-conditions reboot-label resources-grace scheduler-config shutdown-delay startup-timeout tenant-allow-unsafe-kubeconfig tenant-cluster
	tenant-kube-api-burst tenant-kube-api-qps tenant-kube-context tenant-kubeconfig terminate-label topology-labels trusted-users
	unused-claims-per-hour usage-retention v vmodule webhook-bind-address
	webhook-ca-lifetime webhook-ca-settle webhook-cert-lifetime webhook-cert-names webhook-cert-rotation webhook-cert-secret
	webhook-configuration webhook-namespace webhook-service`)...)

// trimPodSpec keeps only what is certainly no secret: the names of environment variables, and the flags among the
// arguments. It keeps the values of our programs' flags.
func trimPodSpec(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			trimContainer(&containers[i])
		}
	}
	for i := range spec.EphemeralContainers {
		container := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		trimContainer(&container)
		spec.EphemeralContainers[i].EphemeralContainerCommon = corev1.EphemeralContainerCommon(container)
	}
}

func trimContainer(container *corev1.Container) {
	for i := range container.Env {
		container.Env[i].Value = ""
	}
	if len(container.Command) > 1 {
		trimArguments(container.Command[1:])
	}
	trimArguments(container.Args)
	// Probes and hooks may contain commands and headers.
	container.LivenessProbe, container.ReadinessProbe, container.StartupProbe, container.Lifecycle = nil, nil, nil, nil
}

func trimArguments(arguments []string) {
	shown := false
	for i, argument := range arguments {
		flag, _, hasValue := strings.Cut(argument, "=")
		known := shownFlags.Has(strings.TrimLeft(flag, "-"))
		switch {
		case !strings.HasPrefix(argument, "-"):
			if !shown {
				arguments[i] = properties.Blanked
			}
			shown = false
			continue
		case known:
		case !strings.HasPrefix(flag, "--") && len(flag) > 2: // a flag of one letter, with its value
			arguments[i] = flag[:2] + properties.Blanked
		case hasValue:
			arguments[i] = flag + "=" + properties.Blanked
		}
		shown = known && !hasValue
	}
}

func (b *bundle) log(ctx context.Context, from place, pod *corev1.Pod, container string, previous bool) {
	name := from.name + "/logs/" + fileName(pod.Namespace, pod.Name, container)
	if previous {
		name += "_previous"
	}
	limit := int64(maxLog)
	stream, err := from.kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container, Previous: previous,
		TailLines: &b.lines, LimitBytes: &limit}).Stream(ctx)
	var content []byte
	if err == nil {
		content, err = io.ReadAll(io.LimitReader(stream, maxLog))
		stream.Close()
	}
	if err != nil {
		b.miss(name+".log", err)
	}
	if len(content) > 0 {
		b.text(name+".log", string(content))
	}
}

// events collects the events of servers, of our kinds, of Karpenter's kinds and of our programs, and Karpenter's
// events on pods.
func (b *bundle) events(ctx context.Context, from place) {
	all, size, pages := &corev1.EventList{}, 0, 0
	for next := ""; ; pages++ {
		if size > maxEvents || pages == view.MaxPages {
			b.missing = append(b.missing, fmt.Sprintf("the other events in the %s cluster: the first %d pages have %d MiB of ours", from.name,
				pages, size>>20))
			break
		}
		page := &corev1.EventList{}
		if err := from.client.List(ctx, page, client.InNamespace(*b.management.Namespace), client.Limit(500), client.Continue(next)); err != nil {
			b.miss("events in the "+from.name+" cluster", err)
			break
		}
		for i := range page.Items {
			event := &page.Items[i]
			if b.isOurs(event) {
				event.ManagedFields = nil
				all.Items, size = append(all.Items, *event), size+event.Size()
			}
		}
		if next = page.Continue; next == "" {
			break
		}
	}
	slices.SortStableFunc(all.Items, func(a, b corev1.Event) int { return view.LastSeen(&a).Compare(view.LastSeen(&b)) })
	b.object(from.name+"/events.yaml", all)
}

func (b *bundle) isOurs(event *corev1.Event) bool {
	group, err := schema.ParseGroupVersion(event.InvolvedObject.APIVersion)
	return err == nil && slices.Contains(groups, group.Group) ||
		strings.Contains(event.ReportingController+event.Source.Component, "karpenter") ||
		strings.Contains(event.InvolvedObject.Name, "karpenter-metal3")
}

// readme describes what the bundle has and what it lacks.
func (b *bundle) readme() string {
	var text strings.Builder
	fmt.Fprintf(&text, "Support bundle of kubectl-metal3 %s, of %s.\n\n", version.Get().GitVersion, b.began.Format(time.RFC3339))
	fmt.Fprintf(&text, "To look at the fleet: kubectl metal3 issues --snapshot snapshot.json, and all other commands.\n\nFiles:\n")
	for _, file := range b.files {
		fmt.Fprintf(&text, "  %s\n", file.name)
	}
	fmt.Fprintf(&text, "\nSecrets were not read. What is called a secret elsewhere, or has the form of one, is xxxxx. Another secret in a "+
		"text stays: look through it.\n\n")
	if len(b.missing) == 0 {
		fmt.Fprintf(&text, "Everything could be read.\n")
		return text.String()
	}
	fmt.Fprintf(&text, "What could not be read:\n")
	for _, missing := range b.missing {
		fmt.Fprintf(&text, "  %s\n", missing)
	}
	return text.String()
}

// write writes the file, readable only for its owner.
func (b *bundle) write(name string) (err error) {
	b.files = append([]bundleFile{{"README.txt", []byte(view.PlainLines(properties.Redact(b.readme())))}}, b.files...)
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	zipped := gzip.NewWriter(file)
	archive := tar.NewWriter(zipped)
	defer func() { err = errors.Join(err, archive.Close(), zipped.Close(), file.Close()) }()
	for _, file := range b.files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: "karpenter-metal3/" + file.name, Mode: 0o600, Size: int64(len(file.content)),
			ModTime: b.began}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(file.content); err != nil {
			return err
		}
	}
	return nil
}
