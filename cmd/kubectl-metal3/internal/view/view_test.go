// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

const secret = "s3cr3t"

// The fields of a snapshot that could hold what the reader of a file must not see are blank, and the others are as they were.
func TestSnapshotHasNoSecret(t *testing.T) {
	host := env.AvailableHost("metal3", "server-01", map[string]string{"rack": "r1"})
	host.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: secret, bmov1alpha1.HardwareDetailsAnnotation: secret}
	host.Spec.BMC.Address = "redfish://admin:" + secret + "@192.0.2.1/redfish/v1/Systems/1"
	host.Spec.Image = &bmov1alpha1.Image{URL: "https://u:" + secret + "@images.example.com/a.qcow2?sig=" + secret, Checksum: "https://u:" +
		secret + "@x.example.com"}
	host.Status.Provisioning.Image = *host.Spec.Image
	host.Status.ErrorMessage = "cannot fetch https://u:" + secret + "@images.example.com/a.qcow2: password=" + secret
	host.Status.OperationHistory.Inspect = bmov1alpha1.OperationMetric{Start: metav1.NewTime(time.Unix(0, 0).UTC())}
	properties := func() map[string]string {
		return map[string]string{
			v1alpha1.PropertyUserData: secret, v1alpha1.PropertyNetworkData: secret, v1alpha1.PropertyOSImage: "noble",
			"example.com/join-key": secret, "example.com/greeting": "hello, " + secret,
			v1alpha1.PropertyImageURL: "https://images.example.com/a?token=" + secret,
		}
	}
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "metal"}}
	provider.Spec.Properties = properties()
	provider.Spec.Metal3.NodeTypes = []v1alpha1.NodeTypeTemplate{{Name: "h100",
		HardwareProfile: v1alpha1.HardwareProfile{Properties: properties()}}}
	nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "h100"}}
	nodeType.Spec.Properties = properties()
	tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "acme"}}
	tenant.Spec.PrivateNodes = &v1alpha1.PrivateNodes{}
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "a"}}
	machine.Spec.Properties = properties()
	class := &v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	class.Spec.Properties = properties()
	machine.Status.Properties = []v1alpha1.MachineProperty{{Key: "example.com/join-key", Value: secret},
		{Key: v1alpha1.PropertyUserData, Value: "(12 bytes)"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Annotations: map[string]string{"token": secret}}}
	pod.Spec = corev1.PodSpec{NodeSelector: map[string]string{"rack": "r1"}, Containers: []corev1.Container{{
		Name: "main", Image: secret, Command: []string{secret}, Args: []string{secret}, Env: []corev1.EnvVar{{Name: "TOKEN", Value: secret}},
		Resources: corev1.ResourceRequirements{Requests: env.Resources("cpu", "2")}, Ports: []corev1.ContainerPort{{HostPort: 80}},
	}}}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "logs",
		Annotations: map[string]string{"token": secret}}}
	set.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"token": secret}},
		Spec: *pod.Spec.DeepCopy()}
	pod.Annotations[karpv1.DoNotDisruptAnnotationKey] = "true"
	management := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(host, provider, nodeType, tenant, machine).Build()
	cluster := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(class, pod, set,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Data: map[string][]byte{"k": []byte(secret)}}).Build()
	snapshot, err := Read(context.Background(), management, []client.Reader{cluster}, Scope{}, metav1.NewTime(time.Unix(100, 0).UTC()))
	if err != nil {
		t.Fatal(err)
	}
	if err := snapshot.ReadPlanning(context.Background(), management, []client.Reader{cluster}); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := snapshot.DeepCopy().Save(&file); err != nil {
		t.Fatal(err)
	}
	for number, line := range strings.Split(file.String(), "\n") {
		if strings.Contains(line, secret) {
			t.Errorf("line %d of the file has the secret: %s", number+1, line)
		}
	}
	loaded, err := Load(&file)
	if err != nil {
		t.Fatal(err)
	}
	if host := loaded.Management.Hosts[0]; host.Labels["rack"] != "r1" || host.Status.OperationHistory.Inspect.Start.IsZero() {
		t.Errorf("the host has lost what is looked at: %+v", host)
	}
	if got := loaded.Management.Machines[0].Spec.Properties[v1alpha1.PropertyOSImage]; got != "noble" {
		t.Errorf("the property %s is %q, and was noble", v1alpha1.PropertyOSImage, got)
	}
	if got := loaded.Management.Machines[0].Spec.Properties["example.com/greeting"]; got != "(13 bytes)" {
		t.Errorf("a property of its own is %q, and would be its length", got)
	}
	if got := loaded.Management.Machines[0].Status.Properties[1].Value; got != "(12 bytes)" {
		t.Errorf("the length of the user data is %q", got)
	}
	if pod := loaded.Tenant.Pods[0]; pod.Spec.NodeSelector["rack"] != "r1" || pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "2" {
		t.Errorf("the pod has lost what it needs: %+v", pod.Spec)
	} else if pod.Annotations[karpv1.DoNotDisruptAnnotationKey] != "true" || pod.Spec.Containers[0].Ports[0].HostPort != 80 {
		t.Errorf("the pod has lost what planning needs: %+v", pod)
	}
	if got := loaded.Tenant.DaemonSets[0].Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "2" {
		t.Errorf("pods of the DaemonSet request %s cores", got)
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ reason, file, want string }{
		"another version": {"its fields may mean something else", `{"kind": "FleetSnapshot", "apiVersion": "view.karpenter.metal3.io/v9"}`,
			`it is a snapshot of version "view.karpenter.metal3.io/v9", and this program reads view.karpenter.metal3.io/v1: make it again by ` +
				`kubectl ` +
				`metal3 snapshot`},
		"another kind": {"a kubeconfig, say", `{"kind": "Config", "apiVersion": "v1"}`,
			`it is not a snapshot: its kind is "Config", and would be FleetSnapshot: make one by kubectl metal3 snapshot`},
		"a list": {"JSON of another shape", `[]`, `it is not a snapshot: its kind is "", and would be FleetSnapshot: make one by kubectl ` +
			`metal3 snapshot`},
		"no JSON": {"a table, say", "NAME", "it is not a snapshot: invalid character 'N' looking for beginning of value: make one by kubectl " +
			"metal3 " +
			"snapshot"},
		"empty": {"a write that was interrupted", "", "it is not a snapshot: EOF: make one by kubectl metal3 snapshot"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Load(strings.NewReader(tc.file)); err == nil || err.Error() != tc.want {
				t.Errorf("%s: got %v, want %s", tc.reason, err, tc.want)
			}
		})
	}
}

// What may not be read is named with the rule, and the rest is shown; another error ends it.
func TestReadWithoutRights(t *testing.T) {
	host := env.AvailableHost("metal3", "server-01", nil)
	for name, tc := range map[string]struct {
		reason      string
		err         error
		want, ended string
	}{
		"forbidden": {reason: "the person may read servers and no Machines",
			err: apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.Group, Resource: "machines"}, "", errors.New("no")),
			want: "you may not list machines.karpenter.metal3.io in the management cluster, and what depends on them is not shown: the rule that " +
				`is missing is apiGroups ["karpenter.metal3.io"], resources ["machines"], verbs [list]`},
		"not installed": {reason: "the CRDs are missing", err: &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: v1alpha1.Group,
			Kind: "Machine"}},
			want: "the management cluster has no machines.karpenter.metal3.io: install its CRD, or name another cluster"},
		"unreachable": {reason: "a table that lacks half of the fleet would be taken for the fleet", err: errors.New("connection refused"),
			ended: "listing machines in the management cluster, connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			reader := interceptor.NewClient(fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(host).Build(), interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if _, isMachines := list.(*v1alpha1.MachineList); isMachines {
						return tc.err
					}
					return c.List(ctx, list, options...)
				},
			})
			snapshot, err := Read(context.Background(), reader, nil, Scope{}, metav1.Now())
			if tc.ended != "" {
				if err == nil || err.Error() != tc.ended {
					t.Errorf("%s: got %v, want %s", tc.reason, err, tc.ended)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(snapshot.Missing) != 1 || snapshot.Missing[0].String() != tc.want || len(New(snapshot).Servers()) != 1 {
				t.Errorf("%s: missing %v, %d servers", tc.reason, snapshot.Missing, len(snapshot.Management.Hosts))
			}
		})
	}
}

// The pages of an API server do not write to each other.
func TestReadPages(t *testing.T) {
	const count = 2*pageSize + 3
	hosts := make([]bmov1alpha1.BareMetalHost, count)
	for i := range hosts {
		label := fmt.Sprint("label-", i)
		hosts[i] = *env.AvailableHost("metal3", label, map[string]string{label: label})
	}
	reader := interceptor.NewClient(fake.NewClientBuilder().WithScheme(Scheme()).Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, isHosts := list.(*bmov1alpha1.BareMetalHostList); !isHosts {
				return nil
			}
			asked := (&client.ListOptions{}).ApplyOptions(options)
			first, _ := strconv.Atoi(asked.Continue)
			page := &bmov1alpha1.BareMetalHostList{Items: hosts[first:min(first+int(asked.Limit), count)]}
			if next := first + int(asked.Limit); next < count {
				page.Continue = strconv.Itoa(next)
			}
			text, err := json.Marshal(page)
			if err != nil {
				return err
			}
			return json.Unmarshal(text, list)
		},
	})
	snapshot, err := Read(context.Background(), reader, nil, Scope{}, metav1.Now())
	if err != nil {
		t.Fatal(err)
	}
	if len(snapshot.Management.Hosts) != count {
		t.Fatalf("read %d hosts, want %d", len(snapshot.Management.Hosts), count)
	}
	for i, host := range snapshot.Management.Hosts {
		if diff := cmp.Diff(hosts[i].Labels, host.Labels); diff != "" {
			t.Fatalf("labels of host %d (-want +got):\n%s", i, diff)
		}
	}
}

// withTenant adds a second tenant cluster, which has a pod of the same name as the first, and one of its own.
func withTenant(s *Snapshot) {
	tenant := v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "globex", Name: "globex"}}
	tenant.Status.ClusterUID = "globex-uid"
	s.Management.TenantClusters = append(s.Management.TenantClusters, tenant)
	first := s.Tenant
	s.Tenant = &Tenant{}
	withPod(nil)(s)
	withPod(func(pod *corev1.Pod) { pod.Name = "inference" })(s)
	s.Tenant.UID, s.Tenant.NodePools = "globex-uid", first.NodePools
	class := v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	class.Status.Conditions = []status.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Message: "no such image"}}
	s.Tenant.NodeClasses = []v1alpha1.MetalNodeClass{class}
	s.Tenant, s.More = first, []*Tenant{s.Tenant}
}

// What several tenant clusters have is told apart, also from a file.
func TestSeveralTenants(t *testing.T) {
	var file bytes.Buffer
	if err := fixture(withPod(nil), withTenant).DeepCopy().Save(&file); err != nil {
		t.Fatal(err)
	}
	content := file.Bytes()
	content = bytes.Replace(content, []byte("{"), fmt.Appendf(nil, `{"kind": %q, "apiVersion": %q,`, SnapshotKind, SnapshotVersion), 1)
	snapshot, err := Load(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	f := New(snapshot)
	for name, want := range map[string]string{
		"inference": "pod default/inference of TenantCluster globex/globex is Pending",
		"training":  `there are 2 of the name "training", in the clusters of acme/acme, globex/globex: name one of them only`,
		"nothing":   `pod "nothing" was not found`,
	} {
		cause, err := f.Explain("pod", name)
		if err != nil {
			cause.Text = err.Error()
		}
		if cause.Text != want {
			t.Errorf("pod %s: %q, want %q", name, cause.Text, want)
		}
	}
	var waiting []string
	all, _ := f.Waiting(10)
	for _, waiters := range all {
		waiting = append(waiting, waiters.Names...)
	}
	if diff := cmp.Diff([]string{"default/inference of TenantCluster globex/globex", "default/training of TenantCluster acme/acme",
		"default/training of TenantCluster globex/globex"}, waiting); diff != "" {
		t.Errorf("these wait (-want +got):\n%s", diff)
	}
	if issues := f.Issues(); len(issues) == 0 || issues[0].Object != "MetalNodeClass default of TenantCluster globex/globex" {
		t.Errorf("the issues are %+v", issues)
	}
}

// What may not be read in one of several tenant clusters is said with the tenant.
func TestReadTenants(t *testing.T) {
	tenants := fixture(withTenant).Management.TenantClusters
	management := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(&tenants[0], &tenants[1]).Build()
	reader := func(uid types.UID, funcs interceptor.Funcs) client.Reader {
		return fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(funcs).
			WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid}}).Build()
	}
	s, err := Read(t.Context(), management, []client.Reader{reader("tenant-uid", interceptor.Funcs{}), reader("globex-uid", interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, isPods := list.(*corev1.PodList); isPods {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
			}
			return c.List(ctx, list, options...)
		}})}, Scope{}, metav1.Now())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Missing) != 1 || !strings.HasPrefix(s.Missing[0].String(), "you may not list pods in the tenant cluster of globex/globex, ") {
		t.Errorf("missing is %v", s.Missing)
	}
}

// fixture is a fleet of one provider, one type of eight GPUs with the label type=h100, and a tenant.
func fixture(changes ...func(*Snapshot)) *Snapshot {
	now := metav1.NewTime(time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC))
	s := &Snapshot{Time: now, Tenant: &Tenant{UID: "tenant-uid"}}
	provider := v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "metal", UID: "metal"}}
	provider.Spec.Metal3.ClusterRef.Namespace = "metal3"
	provider.Spec.Metal3.NodeTypes = []v1alpha1.NodeTypeTemplate{{Name: "h100"}}
	nodeType := v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "h100", OwnerReferences: env.MadeBy("metal")}}
	nodeType.Spec.ProviderRef.Name = "metal"
	nodeType.Spec.HardwareProfile = v1alpha1.HardwareProfile{Resources: env.Resources("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8"),
		BareMetalHosts: env.HostsWith(map[string]string{"type": "h100"})}
	nodeType.Status.Requirements = []v1alpha1.NodeTypeRequirement{{Key: "rack", Values: []string{"r1"}}}
	tenant := v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "acme"}}
	tenant.Status.ClusterUID = "tenant-uid"
	s.Management = Management{NodeProviders: []v1alpha1.NodeProvider{provider}, NodeTypes: []v1alpha1.NodeType{nodeType},
		TenantClusters: []v1alpha1.TenantCluster{tenant}}
	s.Tenant.NodePools = []karpv1.NodePool{*planning.Pool("default", nil)}
	for _, change := range changes {
		change(s)
	}
	return s
}

// withHost adds a host of the type.
func withHost(name string, change func(*bmov1alpha1.BareMetalHost)) func(*Snapshot) {
	return func(s *Snapshot) {
		host := env.AvailableHost("metal3", name, map[string]string{"type": "h100", "rack": "r1"})
		host.UID = types.UID(name)
		host.Status.HardwareDetails.CPU.Count, host.Status.HardwareDetails.RAMMebibytes = 96, 768<<10
		if change != nil {
			change(host)
		}
		s.Management.Hosts = append(s.Management.Hosts, *host)
		count := &s.Management.NodeTypes[0].Status.Capacity
		count.Total++
		if inventory.EligibilityOf(host).Claimable {
			count.Available++
		}
		if host.Spec.ConsumerRef != nil {
			count.Claimed++
		}
	}
}

// withMachine adds a Machine of the tenant that has that host.
func withMachine(name, host string, phase v1alpha1.MachinePhase, change func(*v1alpha1.Machine)) func(*Snapshot) {
	return func(s *Snapshot) {
		machine := v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: name, UID: types.UID(name)}}
		machine.CreationTimestamp = metav1.NewTime(s.Time.Add(-time.Hour))
		machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: "acme"}
		machine.Spec.Resources = env.Resources("nvidia.com/gpu", "8")
		machine.Status.Phase = phase
		if host != "" {
			machine.Status.HostRef = &v1alpha1.HostReference{Namespace: "metal3", Name: host, UID: types.UID(host)}
			machine.Status.NodeTypeRef = &v1alpha1.NameReference{Name: "h100"}
			machine.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionClaimed, Status: metav1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(s.Time.Add(-30 * time.Minute))}}
		}
		machine.Status.Conditions = append(machine.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady,
			Message: "what the manager says"})
		if change != nil {
			change(&machine)
		}
		s.Management.Machines = append(s.Management.Machines, machine)
		withHost(host, func(claimed *bmov1alpha1.BareMetalHost) {
			claimed.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine",
				Namespace: "acme", Name: name}
			claimed.Status.Provisioning.State = bmov1alpha1.StateProvisioned
		})(s)
	}
}

// withPod adds a pending pod that asks for eight GPUs, and that its scheduler has marked Unschedulable.
func withPod(change func(*corev1.Pod)) func(*Snapshot) {
	return func(s *Snapshot) {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "training"}}
		pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: env.Resources("nvidia.com/gpu", "8")}}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable}}
		if change != nil {
			change(&pod)
		}
		s.Tenant.Pods = append(s.Tenant.Pods, pod)
	}
}

// many are changes for so many things, whose names begin with a letter.
func many(count int, letter string, change func(name string) func(*Snapshot)) (changes []func(*Snapshot)) {
	for i := range count {
		changes = append(changes, change(fmt.Sprint(letter, i)))
	}
	return changes
}

// withCPUTypes adds two types without accelerators.
func withCPUTypes(s *Snapshot) {
	for _, name := range []string{"cpu-a", "cpu-b"} {
		nodeType := s.Management.NodeTypes[0].DeepCopy()
		nodeType.Name, nodeType.Status = name, v1alpha1.NodeTypeStatus{}
		nodeType.Spec.HardwareProfile = v1alpha1.HardwareProfile{Resources: env.Resources("cpu", "32", "memory", "128Gi"),
			BareMetalHosts: env.HostsWith(map[string]string{"type": "cpu"})}
		s.Management.NodeTypes = append(s.Management.NodeTypes, *nodeType)
		s.Management.NodeProviders[0].Spec.Metal3.NodeTypes = append(s.Management.NodeProviders[0].Spec.Metal3.NodeTypes,
			v1alpha1.NodeTypeTemplate{Name: name})
	}
}

func withQuota(quota v1alpha1.Quota) func(*Snapshot) {
	return func(s *Snapshot) { s.Management.TenantClusters[0].Spec.Quota = &quota }
}

// withFreeTwin adds another type of the same size, with a free server, which is first by name.
func withFreeTwin(s *Snapshot) {
	twin := s.Management.NodeTypes[0].DeepCopy()
	twin.Name, twin.Status.Capacity = "a-twin", v1alpha1.Capacity{Total: 1, Available: 1}
	s.Management.NodeTypes = append([]v1alpha1.NodeType{*twin}, s.Management.NodeTypes...)
	s.Management.NodeProviders[0].Spec.Metal3.NodeTypes = append(s.Management.NodeProviders[0].Spec.Metal3.NodeTypes,
		v1alpha1.NodeTypeTemplate{Name: twin.Name})
}

// outline is a tree in lines: the verdict, the text and the remedy, indented.
func outline(cause Cause, indent string) string {
	line := fmt.Sprintf("%s[%s] %s", indent, cause.Verdict, cause.Text)
	if cause.Remedy != "" {
		line += " -> " + cause.Remedy
	}
	lines := []string{line}
	for _, inner := range cause.Causes {
		lines = append(lines, outline(inner, indent+"  "))
	}
	return strings.Join(lines, "\n")
}

// waitsForGPU has the node of the first NodeClaim wait for its device plugin since it registered.
func waitsForGPU(since time.Duration) func(*Snapshot) {
	return func(s *Snapshot) {
		registered := metav1.NewTime(s.Time.Add(-since))
		s.Tenant.NodeClaims[0].Status.Conditions = []status.Condition{
			{Type: karpv1.ConditionTypeRegistered, Status: metav1.ConditionTrue, LastTransitionTime: registered},
			{Type: karpv1.ConditionTypeInitialized, Status: metav1.ConditionUnknown, Reason: "ResourceNotRegistered",
				Message: `Resource "nvidia.com/gpu" was requested but not registered`},
		}
	}
}

func TestExplain(t *testing.T) {
	annotated := func(key, value string) func(*bmov1alpha1.BareMetalHost) {
		return func(host *bmov1alpha1.BareMetalHost) { host.Annotations = map[string]string{key: value} }
	}
	claim := func(s *Snapshot) {
		claim := karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "m1",
			Labels: map[string]string{corev1.LabelInstanceTypeStable: "h100"}}}
		s.Tenant.NodeClaims = append(s.Tenant.NodeClaims, claim)
	}
	const podIs = "] pod default/training is Pending\n"
	const pool = "  [OK] NodePool default can have a node for it\n"
	const fits = "fits by its resources and labels, and has a free server"
	const unplanned = fits + ": whether Karpenter takes it, the events of the pod say"
	for name, tc := range map[string]struct {
		reason     string
		kind, name string
		snapshot   *Snapshot
		want       string
	}{
		"pod, served": {"Karpenter is at work", "pod", "training", fixture(withPod(nil), withHost("s1", nil)),
			"[Waiting" + podIs + pool + "  [] NodeType h100 " + unplanned},
		"pod, all in use": {"nobody has to act, so no server is named", "pod", "default/training",
			fixture(withPod(nil), withMachine("m1", "s1", v1alpha1.MachineJoined, nil), withMachine("m2", "s2", v1alpha1.MachineReleasing, nil)),
			"[Wrong" + podIs + pool + "  [Wrong] no server is available for it\n" +
				"    [Wrong] NodeType h100: 2 servers match, 2 claimed, 0 in error\n" +
				"      [Waiting] 2 claimed: 2 by acme/acme (Joined 1, Releasing 1)"},
		"pod, alike": {"what is the same is in one line, and servers that need somebody are named", "pod", "training",
			fixture(append(many(24, "j", func(name string) func(*Snapshot) {
				return withMachine("m"+name, name, v1alpha1.MachineJoined, nil)
			}), withPod(nil), withHost("w1", annotated(v1alpha1.MaintenanceAnnotationKey, "DIMM")), withHost("w2",
				annotated(v1alpha1.MaintenanceAnnotationKey, "DIMM")), withHost("q1", annotated(v1alpha1.QuarantinedAnnotationKey, "x")),
				withHost("i1", func(host *bmov1alpha1.BareMetalHost) { host.Status.Provisioning.State = bmov1alpha1.StateInspecting }),
				withHost("o1", func(host *bmov1alpha1.BareMetalHost) {
					host.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Namespace: "capm3", Name: "worker-0"}
				}), withCPUTypes)...), "[Wrong" + podIs + pool + "  [Wrong] no server is available for it\n" +
				"    [Wrong] NodeType h100: 29 servers match, 25 claimed, 0 in error, 4 not ready\n" +
				"      [Waiting] servers that come back by themselves: Inspecting 1\n      [Wrong] 2 servers: Maintenance\n" +
				"        [Wrong] server metal3/w1 (rack r1, zone global) is in maintenance -> when the work is done: kubectl annotate baremetalhost " +
				"-n metal3 w1 karpenter.metal3.io/maintenance-\n" +
				"        [Wrong] server metal3/w2 (rack r1, zone global) is in maintenance -> when the work is done: kubectl annotate baremetalhost " +
				"-n metal3 w2 karpenter.metal3.io/maintenance-\n" +
				"      [Wrong] server metal3/q1 (rack r1, zone global) is quarantined; an operator must check it and remove the annotation " +
				"karpenter.metal3.io/quarantined -> check the server, then: kubectl annotate baremetalhost -n metal3 q1 " +
				"karpenter.metal3.io/quarantined-\n" +
				"      [] 25 claimed: 24 by acme/acme, 1 by others\n    [Wrong] NodeType cpu-a, cpu-b: has no nvidia.com/gpu"},
		"pod, several on their way": {"for so many the first and the last say enough", "pod", "training", fixture(append(
			many(3, "p", func(name string) func(*Snapshot) {
				return withMachine("m-"+name, name, v1alpha1.MachineProvisioning, func(m *v1alpha1.Machine) {
					m.Status.Progress = &v1alpha1.MachineProgress{Step: 3, Steps: 5, Description: "writing image",
						ExpectedReadyTime: &metav1.Time{Time: time.Date(2026, 1, 2, 15, 1+int(name[1]-'0'), 0, 0, time.UTC)}}
				})
			}), withPod(nil), func(s *Snapshot) {
				for _, name := range []string{"m-p0", "m-p1", "m-p2"} {
					claim := karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name,
						Labels: map[string]string{corev1.LabelInstanceTypeStable: "h100"}}}
					s.Tenant.NodeClaims = append(s.Tenant.NodeClaims, claim)
				}
			})...), "[Waiting" + podIs + pool + "  [Waiting] no server is available for it\n" +
			"    [Wrong] NodeType h100: 3 servers match, 3 claimed, 0 in error\n      [] 3 claimed: 3 by acme/acme (Provisioning 3)\n" +
			"    [Waiting] a node of a type that fits is on its way, for this pod or another: 3 NodeClaims are on their way: the first is " +
			"expected in 1m0s, the last in 3m0s"},
		"pod, on its way": {"a node that fits is being installed", "pod", "training",
			fixture(withPod(nil), withMachine("m1", "s1", v1alpha1.MachineProvisioning, func(m *v1alpha1.Machine) {
				m.Status.Progress = &v1alpha1.MachineProgress{Step: 3, Steps: 5, Description: "writing image",
					LastProgressTime: metav1.Date(2026, 1, 2, 14, 58, 0, 0, time.UTC), ExpectedReadyTime: &metav1.Time{Time: time.Date(2026, 1, 2, 15, 4,
						0, 0, time.UTC)}}
			}), claim),
			"[Waiting" + podIs + pool + "  [Waiting] no server is available for it\n" +
				"    [Wrong] NodeType h100: 1 server matches, 1 claimed, 0 in error\n" +
				"      [] 1 claimed: 1 by acme/acme (Provisioning 1)\n" +
				"    [Waiting] a node of a type that fits is on its way, for this pod or another: NodeClaim m1\n" +
				"      [Waiting] Machine acme/m1 is Provisioning: what the manager says\n" +
				"        [Waiting] step 3/5 writing image since 2m0s: its node is expected in 4m0s"},
		"pod, too big": {"no wait helps", "pod", "training", fixture(withHost("s1", nil), withPod(func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Requests = env.Resources("nvidia.com/gpu", "16")
		})), "[Wrong" + podIs + pool + "  [Wrong] no NodeType fits\n    [Wrong] NodeType h100: too small: asks nvidia.com/gpu 16, has 8"},
		"pod, devices": {"a class may serve what no type lists", "pod", "training", fixture(withHost("s1", nil), withPod(func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Requests = env.Resources("example.com/gpu", "1")
		}), func(s *Snapshot) {
			s.Management.NodeTypes[0].Spec.Devices = []v1alpha1.NodeTypeDevice{{Driver: "gpu.example.com", Count: 8}}
		}), "[Waiting" + podIs + pool + "  [] no NodeType lists example.com/gpu among its resources, and NodeTypes declare devices, " +
			"which a DeviceClass may serve by that name: Karpenter says in the events of the pod why it gets no node"},
		"pod, wrong rack": {"the label is the servers', and none has that value", "pod", "training", fixture(withHost("s1", nil),
			withPod(func(pod *corev1.Pod) {
				pod.Spec.NodeSelector = map[string]string{"rack": "r9"}
			})), "[Wrong" + podIs + pool + "  [Wrong] no NodeType fits\n    [Wrong] NodeType h100: does not match nodeSelector/affinity rack In " +
			"[r9]"},
		"pod, taint": {"the pool has a taint", "pod", "training", fixture(withHost("s1", nil), withPod(nil), func(s *Snapshot) {
			s.Tenant.NodePools[0].Spec.Template.Spec.Taints = []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}}
		}), "[Wrong" + podIs + "  [Wrong] no NodePool can have a node for it\n" +
			"    [Wrong] NodePool default: did not tolerate taint (taint=team=a:NoSchedule)"},
		"pod, no pool": {"the tenant was not finished", "pod", "training", fixture(withHost("s1", nil), withPod(nil),
			func(s *Snapshot) { s.Tenant.NodePools = nil }),
			"[Wrong" + podIs + "  [Wrong] there is no NodePool -> create one, or privateNodes.autoNodes in the TenantCluster"},
		"pod, limit": {"the pool is full", "pod", "training", fixture(withHost("s1", nil), withPod(nil), func(s *Snapshot) {
			s.Tenant.NodePools[0].Spec.Limits = karpv1.Limits(env.Resources("nvidia.com/gpu", "8"))
			s.Tenant.NodePools[0].Status.Resources = env.Resources("nvidia.com/gpu", "16")
		}), "[Wrong" + podIs + "  [Wrong] no NodePool can have a node for it\n" +
			"    [Wrong] NodePool default: resource usage exceeds limit (limit=8, resource-name=nvidia.com/gpu, usage=16)"},
		"pod, quota": {"the tenant has as many servers as it may have", "pod", "training", fixture(withHost("s2", nil), withPod(nil),
			withMachine("m1", "s1", v1alpha1.MachineJoined, nil), withQuota(v1alpha1.Quota{Servers: ptr.To(int64(1))})),
			"[Wrong" + podIs + pool +
				"  [Wrong] TenantCluster acme/acme has 1 servers and its spec.quota.servers is 1: raise the quota, or release a " +
				"server\n  [] NodeType h100 " + fits},
		"pod, quota of the type": {"it has all that it may have of the only type that fits", "pod", "training",
			fixture(withHost("s2", nil), withPod(nil), withMachine("m1", "s1", v1alpha1.MachineJoined, nil),
				withQuota(v1alpha1.Quota{NodeTypes: map[string]v1alpha1.ServerCount{"h100": 1, "other": 7}})),
			"[Wrong" + podIs + pool + "  [Wrong] TenantCluster acme/acme has 1 servers of NodeType h100 and its " +
				"spec.quota.nodeTypes[h100] is 1: raise the quota, or release a server\n  [] NodeType h100 " + fits},
		"pod, quota of the type of its pool": {"the pod selects a NodePool that can have no other type", "pod", "training",
			fixture(withHost("s2", nil), withPod(func(pod *corev1.Pod) {
				pod.Spec.NodeSelector = map[string]string{karpv1.NodePoolLabelKey: "default"}
			}), withMachine("m1", "s1", v1alpha1.MachineJoined, nil), withFreeTwin, func(s *Snapshot) {
				s.Tenant.NodePools[0].Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{
					Key: v1alpha1.NodeTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"h100"}}}
			}, withQuota(v1alpha1.Quota{NodeTypes: map[string]v1alpha1.ServerCount{"h100": 1}})),
			"[Wrong" + podIs + pool + "  [Wrong] TenantCluster acme/acme has 1 servers of NodeType h100 and its " +
				"spec.quota.nodeTypes[h100] is 1: raise the quota, or release a server\n  [] NodeType h100 " + fits},
		"pod, quota of one of its types": {"the other type that it fits is within the quota", "pod", "training",
			fixture(withHost("s2", nil), withPod(nil), withMachine("m1", "s1", v1alpha1.MachineJoined, nil), withFreeTwin,
				withQuota(v1alpha1.Quota{NodeTypes: map[string]v1alpha1.ServerCount{"h100": 1}})),
			"[Waiting" + podIs + pool +
				"  [] NodeType a-twin " + unplanned},
		"pod, quota of another type": {"it may have one more of the type that fits", "pod", "training",
			fixture(withHost("s2", nil), withPod(nil), withMachine("m1", "s1", v1alpha1.MachineJoined, nil),
				withQuota(v1alpha1.Quota{NodeTypes: map[string]v1alpha1.ServerCount{"h100": 2, "other": 0}})),
			"[Waiting" + podIs + pool +
				"  [] NodeType h100 " + unplanned},
		"pod, quota of accelerators": {"another server has more than are left", "pod", "training", fixture(withHost("s2",
			nil),
			withPod(nil), withMachine("m1", "s1", v1alpha1.MachineJoined,
				nil), withQuota(v1alpha1.Quota{GPUs: ptr.To(int64(15))})),
			"[Wrong" + podIs + pool + "  [Wrong] TenantCluster acme/acme has 8 GPUs, a server of NodeType h100 has 8 more, " +
				"and its spec.quota.gpus is 15: raise the quota, or release a server\n  [] NodeType h100 " + fits},
		"pod, blocked": {"the provider does nothing for this tenant", "pod", "training", fixture(withHost("s1", nil), withPod(nil),
			func(s *Snapshot) {
				s.Management.TenantClusters[0].Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionKubeconfigAccepted,
					Status: metav1.ConditionFalse, Message: "401"}}
			}), "[Wrong" + podIs + "  [Wrong] TenantCluster acme/acme is blocked: \"401\"\n" + pool +
			"  [] NodeType h100 " + fits},
		"pod, silent provider": {"it is first, and the manager need not have seen it", "pod", "training", fixture(withHost("s1", nil),
			withPod(nil), silentProvider), "[Wrong" + podIs + "  [Wrong] TenantCluster acme/acme is blocked: " + silence + "\n" + pool +
			"  [] NodeType h100 " + fits},
		"pod, silent manager": {"its NodeClaim is there, and nobody gives that a server", "pod", "training", fixture(withHost("s1", nil),
			withPod(nil), claim, unansweredMachine), "[Wrong" + podIs + "  [Wrong] " + unansweredText + "\n" + pool +
			"  [Waiting] NodeType h100 " + fits + "\n" +
			"    [Wrong] a node of a type that fits is on its way, for this pod or another: NodeClaim m1\n      [Wrong] " + unansweredText + "\n" +
			"      [Wrong] Machine acme/m1 is Pending: the manager has not said anything about it -> " + managerRemedy + "\n" +
			"        [Waiting] a server that fits can be claimed now"},
		"nodeclaim, silent manager": {"the Machine has no word of it", "nodeclaim", "m1", fixture(withHost("s1", nil), claim, unansweredMachine),
			"[Wrong] NodeClaim m1\n  [Wrong] " + unansweredText + "\n" +
				"  [Wrong] Machine acme/m1 is Pending: the manager has not said anything about it -> " + managerRemedy + "\n" +
				"    [Waiting] a server that fits can be claimed now"},
		"nodeclaim, silent provider": {"it is before what was said earlier", "nodeclaim", "m1", fixture(silentProvider, claim, func(s *Snapshot) {
			s.Tenant.NodeClaims[0].Status.Conditions = []status.Condition{{Type: karpv1.ConditionTypeLaunched, Status: metav1.ConditionUnknown,
				Reason: "LaunchFailed", Message: "no answer"}}
		}), "[Wrong] NodeClaim m1\n  [Wrong] TenantCluster acme/acme is blocked: " + silence + "\n" +
			"  [Wrong] it is not launched: \"LaunchFailed: no answer\"\n" +
			"  [Wrong] it has no Machine in namespace acme -> see what the provider says: kubectl describe nodeclaim m1, in the tenant cluster"},
		"pod, gate": {"another controller holds it", "pod", "training", fixture(withPod(func(pod *corev1.Pod) {
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
		})), "[Wrong" + podIs + "  [Wrong] the scheduling gate kueue.x-k8s.io/admission holds it -> what has set the gate removes it"},
		"pod, unseen": {"no scheduler of that name runs", "pod", "training", fixture(withHost("s1", nil), withPod(func(pod *corev1.Pod) {
			pod.Spec.SchedulerName, pod.Status.Conditions = "kai-scheduler", nil
		})), "[Wrong" + podIs + "  [Wrong] no scheduler has looked at it: it names the scheduler \"kai-scheduler\" -> see that a scheduler of " +
			"this name runs, or correct spec.schedulerName"},
		"pod, unseen by kube-scheduler": {"it names no scheduler", "pod", "training", fixture(withHost("s1", nil), withPod(
			func(pod *corev1.Pod) { pod.Status.Conditions = nil })), "[Wrong" + podIs +
			"  [Wrong] no scheduler has looked at it: it names the scheduler \"default-scheduler\" -> see that a scheduler of this name " +
			"runs, or correct spec.schedulerName"},
		"pod, waits for its gang": {"Volcano has a place for it, and none for another pod", "pod", "training", fixture(withHost("s1", nil),
			withPod(func(pod *corev1.Pod) {
				pod.Spec.SchedulerName = "volcano"
				pod.Status.Conditions[0].Reason, pod.Status.Conditions[0].Message = "Schedulable", "can possibly be assigned to n1"
			})), "[Waiting" + podIs + "  [Waiting] the scheduler \"volcano\" says \"Schedulable: can possibly be assigned to n1\": Karpenter " +
			"waits until it says Unschedulable"},
		"pod, preempts": {"it gets the place of others", "pod", "training", fixture(withHost("s1", nil), withPod(func(pod *corev1.Pod) {
			pod.Status.NominatedNodeName = "n1"
		})), "[Waiting" + podIs + "  [Waiting] the scheduler \"default-scheduler\" has nominated node n1 for it, " +
			"where a volume is made or other pods are evicted"},
		"pod, not allowed": {"the tenant may not have the type", "pod", "training", fixture(withHost("s1", nil), withPod(nil), func(s *Snapshot) {
			s.Management.TenantClusters[0].Spec.AllowedNodeTypes = &[]string{"cpu"}
		}), "[Wrong" + podIs + pool + "  [Wrong] no NodeType fits\n    [Wrong] NodeType h100: not allowed for this tenant"},
		"pod, of no tenant": {"the kubeconfig is of another cluster, or the provider never ran", "pod", "training", fixture(withPod(nil),
			func(s *Snapshot) {
				s.Tenant.UID = "another"
			}), "[Wrong" + podIs + "  [Wrong] which TenantCluster this cluster is cannot be told: none has its identity in status.clusterUID -> " +
			"see that the provider runs, and has the kubeconfig of this cluster"},
		"host, quarantined": {"a person must look at it", "host", "s1", fixture(withHost("s1", annotated(v1alpha1.QuarantinedAnnotationKey,
			"x"))),
			"[Wrong] server metal3/s1 (rack r1, zone global) is quarantined; an operator must check it and remove the annotation " +
				"karpenter.metal3.io/quarantined -> check the server, then: kubectl annotate baremetalhost -n metal3 s1 " +
				"karpenter.metal3.io/quarantined-\n" +
				"  [] it matches NodeType h100"},
		"host, foreign": {"it is another program's, which is named", "host", "metal3/s1", fixture(withHost("s1",
			func(host *bmov1alpha1.BareMetalHost) {
				host.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Namespace: "capm3", Name: "worker-0"}
			})), "[] server metal3/s1 (rack r1, zone global) is used by Metal3Machine capm3/worker-0\n  [] it matches NodeType h100"},
		"host, too small": {"it has a broken DIMM, say", "host", "s1", fixture(withHost("s1", func(host *bmov1alpha1.BareMetalHost) {
			host.Status.HardwareDetails.RAMMebibytes = 512 << 10
		})), "[Wrong] server metal3/s1 (rack r1, zone global) is too small for NodeType h100 (memory 512Gi of 768Gi) -> correct the " +
			"resources of the NodeType, or the labels of the host\n  [] it matches NodeType h100\n" +
			"  [Wrong] it is too small for NodeType h100 (memory 512Gi of 768Gi) -> correct the resources of NodeType h100, or the labels of " +
			"the host"},
		"host, error": {"Metal3's words are for operators", "host", "s1", fixture(withHost("s1", func(host *bmov1alpha1.BareMetalHost) {
			host.Status.ErrorType, host.Status.ErrorMessage = bmov1alpha1.PowerManagementError, "BMC does not answer"
		})), "[Wrong] server metal3/s1 (rack r1, zone global) is in error (power management error): BMC does not answer -> Metal3 tries " +
			"again by itself; what it says is in: kubectl describe baremetalhost -n metal3 s1\n  [] it matches NodeType h100"},
		"machine, pending": {"by type, why it has no server", "machine", "m1", fixture(withHost("s0",
			annotated(v1alpha1.MaintenanceAnnotationKey, "")),
			func(s *Snapshot) {
				withMachine("m1", "", v1alpha1.MachinePending, nil)(s)
				s.Management.Hosts = s.Management.Hosts[:1]
			}),
			"[Wrong] Machine acme/m1 is Pending: what the manager says\n" +
				"  [Wrong] NodeType h100: 1 server matches, 0 claimed, 0 in error, 1 in maintenance\n" +
				"    [Wrong] server metal3/s0 (rack r1, zone global) is in maintenance -> when the work is done: kubectl annotate " +
				"baremetalhost -n metal3 s0 karpenter.metal3.io/maintenance-"},
		"machine, arrived": {"without a tenant it is where it should be, and is not late", "machine", "m1",
			fixture(withMachine("m1", "s1", v1alpha1.MachineProvisioned, func(m *v1alpha1.Machine) {
				m.Spec.TenantClusterRef = nil
				m.Status.Progress = &v1alpha1.MachineProgress{Step: 4, Steps: 4, Description: "provisioned",
					ExpectedReadyTime: &metav1.Time{Time: time.Date(2026, 1, 2, 14, 55, 0, 0, time.UTC)}}
			})), "[OK] Machine acme/m1 is Provisioned: what the manager says"},
		"host, of a Machine that was not read": {"of another namespace, say", "host", "s1", fixture(withHost("s1",
			func(host *bmov1alpha1.BareMetalHost) {
				host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: "b", Name: "m"}
			})), "[] server metal3/s1 (rack r1, zone global) is used by Machine b/m, which is not among those that were read\n" +
			"  [] it matches NodeType h100"},
		"host, not cleaned, for any tenant": {"the NodeProvider says that any tenant may have it", "host", "s1", fixture(
			withHost("s1", annotated(v1alpha1.LastTenantAnnotationKey, "b")), func(s *Snapshot) {
				s.Management.NodeProviders[0].Spec.Metal3.UncleanedServers = v1alpha1.UncleanedServersAnyTenant
			}), "[OK] server metal3/s1 (rack r1, zone global) can be claimed\n  [] it matches NodeType h100"},
		"machine, late": {"it takes longer than usual", "machine", "acme/m1", fixture(withMachine("m1", "s1", v1alpha1.MachineProvisioned,
			func(m *v1alpha1.Machine) {
				m.Status.Progress = &v1alpha1.MachineProgress{Step: 4, Steps: 5, Description: "booting",
					LastProgressTime: metav1.Date(2026, 1, 2, 14, 50, 0, 0, time.UTC), ExpectedReadyTime: &metav1.Time{Time: time.Date(2026, 1, 2, 14, 55,
						0, 0, time.UTC)}}
			})), "[Waiting] Machine acme/m1 is Provisioned: what the manager says\n" +
			"  [Waiting] step 4/5 booting since 10m0s: it takes longer than usual: it was expected 5m0s ago"},
		"nodeclaim, no machine": {"the provider did not make it", "nodeclaim", "m1", fixture(claim),
			"[Wrong] NodeClaim m1\n  [Wrong] it has no Machine in namespace acme -> see what the provider says: kubectl describe nodeclaim m1, " +
				"in the " +
				"tenant cluster"},
		"nodeclaim, not initialized": {"drivers take a while", "nodeclaim", "m1", fixture(claim, waitsForGPU(5*time.Minute),
			withMachine("m1", "s1", v1alpha1.MachineJoined, nil)), "[Waiting] NodeClaim m1\n" +
			"  [Waiting] its node registered 5m0s ago, is not initialized, and holds its server: \"ResourceNotRegistered: " +
			"Resource 'nvidia.com/gpu' was requested but not registered\"\n  [OK] Machine acme/m1 is Joined: what the manager says"},
		"nodeclaim, never initialized": {"the image has no driver", "nodeclaim", "m1", fixture(claim, waitsForGPU(11*time.Minute),
			withMachine("m1", "s1", v1alpha1.MachineJoined, nil), func(s *Snapshot) {
				claim := &s.Tenant.NodeClaims[0]
				claim.Status.Conditions = append(claim.Status.Conditions, status.Condition{Type: v1alpha1.ConditionResourcesAdvertised,
					Status: metav1.ConditionFalse, Message: "look at the image"})
			}), "[Wrong] NodeClaim m1\n" +
			"  [Wrong] its node registered 11m0s ago, is not initialized, and holds its server: \"ResourceNotRegistered: " +
			"Resource 'nvidia.com/gpu' was requested but not registered\" -> kubectl describe nodeclaim m1, in the tenant cluster\n" +
			"    [Wrong] \"look at the image\"\n  [OK] Machine acme/m1 is Joined: what the manager says"},
		"nodetype, no provider": {"it has no servers at all", "nodetype", "h100", fixture(func(s *Snapshot) { s.Management.NodeProviders = nil }),
			"[Wrong] NodeType h100 has no servers: its NodeProvider \"metal\" does not exist, or cannot be read: " +
				"correct spec.providerRef"},
		"nodetype": {"as it should be", "nodetype", "h100", fixture(withHost("s1", nil)),
			"[OK] NodeType h100: 1 server matches, 0 claimed, 0 in error"},
	} {
		t.Run(name, func(t *testing.T) {
			cause, err := New(tc.snapshot).Explain(tc.kind, tc.name)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, outline(cause, "")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestExplainNotFound(t *testing.T) {
	twice := fixture(withHost("s1", nil), withHost("s1", func(host *bmov1alpha1.BareMetalHost) {
		host.Namespace, host.UID = "other",
			"other"
	}))
	for name, tc := range map[string]struct {
		kind, name string
		snapshot   *Snapshot
		want       string
	}{
		"host":      {"host", "s9", fixture(), `host "s9" was not found`},
		"machine":   {"machine", "acme/m9", fixture(), `machine "acme/m9" was not found`},
		"pod":       {"pod", "p9", fixture(), `pod "p9" was not found`},
		"nodeclaim": {"nodeclaim", "c9", fixture(), `NodeClaim "c9" was not found in the tenant cluster`},
		"nodetype":  {"nodetype", "t9", fixture(), `NodeType "t9" was not found`},
		"kind": {"disk", "d", fixture(),
			`"disk" cannot be explained: name one of pod, podgroup, job, jobset, nodeclaim, machine, host, nodetype`},
		"two": {"host", "s1", twice, `there are 2 of the name "s1", in the namespaces metal3, other: name it as NAMESPACE/s1`},
		"no tenant": {"pod", "p", fixture(func(s *Snapshot) { s.Tenant = nil }),
			"a pod is in a tenant cluster: name its kubeconfig with --tenant-kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(tc.snapshot).Explain(tc.kind, tc.name); err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// BenchmarkFleet is what a command does with what it has read of ten thousand servers.
func BenchmarkFleet(b *testing.B) {
	snapshot := fixture()
	for i := range 10_000 {
		withHost(fmt.Sprintf("server-%05d", i), func(host *bmov1alpha1.BareMetalHost) { host.Labels["rack"] = fmt.Sprint("r", i/40) })(snapshot)
	}
	b.ReportAllocs()
	for b.Loop() {
		if servers := New(snapshot).Servers(); len(servers) != 10_000 {
			b.Fatal(len(servers))
		}
	}
}
