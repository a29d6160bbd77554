// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// cluster has objects by kind and name, and records what is read.
type cluster struct {
	objects map[string]Object
	tenant  *v1alpha1.TenantCluster
	read    []string
}

func newCluster(objects ...Object) *cluster {
	c := &cluster{objects: map[string]Object{}}
	for _, object := range objects {
		c.objects[keyOf(object, object.GetName())] = object
	}
	return c
}

func keyOf(object Object, name string) string {
	return reflect.TypeOf(object).Elem().Name() + "/" + name
}

func (c *cluster) Find(_ context.Context, name string, target Object) (bool, error) {
	key := keyOf(target, name)
	c.read = append(c.read, key)
	object, found := c.objects[key]
	if found {
		reflect.ValueOf(target).Elem().Set(reflect.ValueOf(object).Elem())
	}
	return found, nil
}

func (c *cluster) ChargedTo(context.Context, *v1alpha1.Machine) (*v1alpha1.TenantCluster, error) {
	return c.tenant, nil
}

func (c *cluster) Types(context.Context) ([]*v1alpha1.NodeType, []*v1alpha1.NodeProvider, error) {
	return nil, nil, nil
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// fleet is a cluster with a type of everything.
func fleet() *cluster {
	nodeType := &v1alpha1.NodeType{ObjectMeta: named("h100")}
	nodeType.Spec.ProviderRef.Name = "metal"
	nodeType.Spec.Properties = map[string]string{v1alpha1.PropertyOSImage: "ubuntu", v1alpha1.PropertyUserDataTemplate: "gpu"}
	provider := &v1alpha1.NodeProvider{ObjectMeta: named("metal")}
	provider.Spec.Properties = map[string]string{v1alpha1.PropertySSHKeys: "admin", v1alpha1.PropertyNetworkCIDR: "192.0.2.1/24"}
	image := &v1alpha1.OSImage{ObjectMeta: named("ubuntu"), Spec: v1alpha1.OSImageSpec{Properties: map[string]string{
		v1alpha1.PropertyImageURL: "http://images/u.qcow2", v1alpha1.PropertyImageChecksum: strings.Repeat("a", 32)}}}
	template := &v1alpha1.MachineConfigTemplate{ObjectMeta: named("gpu")}
	template.Spec.CloudInitTemplate = "#cloud-config"
	key := &v1alpha1.SSHKey{ObjectMeta: named("admin"), Spec: v1alpha1.SSHKeySpec{PublicKey: exampleKey + "\n"}}
	return newCluster(nodeType, provider, image, template, key)
}

func machineWith(values map[string]string) *v1alpha1.Machine {
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "m"}}
	machine.Spec.Properties, machine.Status.Network = values, "vlan:100"
	return machine
}

func TestResolve(t *testing.T) {
	p, err := Resolve(t.Context(), fleet(), machineWith(nil), "h100")
	if err != nil {
		t.Fatal(err)
	}
	if p.Image.URL != "http://images/u.qcow2" || p.NodeType != "h100" || p.Provider != "metal" || p.NetworkTemplate != nil ||
		p.UserTemplate == nil || *p.UserTemplate != (Template{"cloudInitTemplate of MachineConfigTemplate gpu", "#cloud-config"}) {
		t.Errorf("got %+v", p)
	}
	if diff := cmp.Diff([]string{exampleKey}, p.SSHKeys); diff != "" {
		t.Errorf("SSH keys (-want +got):\n%s", diff)
	}
	if p.Pool == nil || p.Pool.Network() != "vlan:100" {
		t.Errorf("got pool %v, want one of the network that the server is moved into", p.Pool)
	}
}

// TestMirrorsReplaceNoServer: mirrors are how a server is prepared, and not what is installed on it.
func TestMirrorsReplaceNoServer(t *testing.T) {
	c, machine := fleet(), machineWith(nil)
	before, err := Resolve(t.Context(), c, machine, "h100")
	if err != nil {
		t.Fatal(err)
	}
	mirrors := &v1alpha1.Mirrors{Images: []v1alpha1.Mirror{{Upstream: "_default", URL: "https://mirror.example.com"}}}
	c.objects["NodeProvider/metal"].(*v1alpha1.NodeProvider).Spec.Mirrors = mirrors
	after, err := Resolve(t.Context(), c, machine, "h100")
	if err != nil || after.Mirrors != mirrors {
		t.Fatalf("the plan has mirrors %v, %v", after, err)
	}
	if drift := after.Drift(before.Installed()); drift.Status != metav1.ConditionFalse || Hash(after.Installed()) != Hash(before.Installed()) {
		t.Errorf("servers that run have drifted: %v", drift)
	}
}

// TestResolveWithoutType: no type has been chosen, and what the Machine itself sets is checked.
func TestResolveWithoutType(t *testing.T) {
	c := fleet()
	p, err := Resolve(t.Context(), c, machineWith(map[string]string{v1alpha1.PropertySSHKeys: "admin"}), "")
	if err != nil || len(p.SSHKeys) != 1 {
		t.Errorf("got %+v, %v", p, err)
	}
	if diff := cmp.Diff([]string{"SSHKey/admin"}, c.read); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}

func TestResolveInvalid(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		change  func(*cluster)
		values  map[string]string
		problem string
	}{
		"NoType": {"names the object", func(c *cluster) { delete(c.objects, "NodeType/h100") }, nil,
			`NodeType "h100" does not exist: create it`},
		"NoProvider": {"names the object", func(c *cluster) { delete(c.objects, "NodeProvider/metal") }, nil,
			`NodeProvider "metal" does not exist: create it`},
		"NoImage": {"names who refers to it", func(c *cluster) { delete(c.objects, "OSImage/ubuntu") }, nil,
			`property karpenter.metal3.io/os-image of NodeType h100 is "ubuntu", and there is no OSImage of that name ("ubuntu"): create it or ` +
				`correct the property`},
		"EmptyTemplate": {"it has the other field", func(c *cluster) {
			template := &v1alpha1.MachineConfigTemplate{ObjectMeta: named("gpu")}
			template.Spec.NetworkDataTemplate = "links: []"
			c.objects["MachineConfigTemplate/gpu"] = template
		}, nil, `property karpenter.metal3.io/user-data-template of NodeType h100 is "gpu", which has no spec.cloudInitTemplate: write one ` +
			`there, or name another template`},
		"Key": {"an example is not a key", func(c *cluster) { c.objects["SSHKey/admin"].(*v1alpha1.SSHKey).Spec.PublicKey = "x" }, nil,
			`spec.publicKey of SSHKey "admin" is not a public key: copy the whole line of the file that ends in .pub, for example "ssh-ed25519 ` +
				`AAAAC3... user@host"`},
		"ImageHost": {"it is not fetched from anywhere", func(c *cluster) {
			c.objects["NodeProvider/metal"].(*v1alpha1.NodeProvider).Spec.ImageHosts = []string{"mirror"}
		}, nil, `property karpenter.metal3.io/image-url of OSImage ubuntu ("http://images/u.qcow2") is on host images, which is not among ` +
			`spec.imageHosts of NodeProvider metal: choose from mirror, or have the host added there`},
		"Value": {"it is the Machine's", func(*cluster) {}, map[string]string{v1alpha1.PropertyImageURL: "ftp://x/y"},
			`property karpenter.metal3.io/image-url of Machine acme/m ("ftp://x/y") is not an http, https or oci URL: set it to one, for example ` +
				`https://images.example.com/ubuntu.qcow2`},
	} {
		t.Run(name, func(t *testing.T) {
			c := fleet()
			tc.change(c)
			_, err := Resolve(t.Context(), c, machineWith(tc.values), "h100")
			if problem, invalid := Problem(err); !invalid || problem != tc.problem {
				t.Errorf("%s: got %v\nwant %s", tc.reason, err, tc.problem)
			}
		})
	}
}

// TestNotPermitted: what a tenant may not name is not looked up, and what its server was installed with stays
// permitted.
func TestNotPermitted(t *testing.T) {
	for _, typeName := range []string{"h100", ""} {
		c := fleet()
		c.tenant = &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "acme"}}
		machine := machineWith(map[string]string{v1alpha1.PropertySSHKeys: "globex"})
		_, err := Resolve(t.Context(), c, machine, typeName)
		if problem, _ := Problem(err); !strings.Contains(problem, "is not among what the tenant may name") {
			t.Errorf("type %q: got %v", typeName, err)
		}
		if slices.Contains(c.read, "SSHKey/globex") {
			t.Errorf("type %q: read %v", typeName, c.read)
		}
		c.objects["SSHKey/globex"] = &v1alpha1.SSHKey{ObjectMeta: named("globex"), Spec: v1alpha1.SSHKeySpec{PublicKey: exampleKey}}
		before := &Plan{Set: properties.Merge(properties.OfMachine(machine))}
		machine.Status.Installed = before.Installed()
		if _, err := Resolve(t.Context(), c, machine, typeName); err != nil {
			t.Errorf("type %q: installed with it: %v", typeName, err)
		}
	}
}

// TestNotProfiled: a Machine without a server gets none without the NodeProfile that it names.
func TestNotProfiled(t *testing.T) {
	c := fleet()
	c.tenant = &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "acme"}}
	machine := machineWith(nil)
	machine.Spec.ProfileRef = &v1alpha1.NameReference{Name: "fast"}
	_, err := Resolve(t.Context(), c, machine, "h100")
	if problem, _ := Problem(err); problem != `NodeProfile "fast" does not exist: create it` {
		t.Errorf("got %v", err)
	}
	machine.Status.HostRef = &v1alpha1.HostReference{Name: "server-00"}
	if _, err := Resolve(t.Context(), c, machine, "h100"); err != nil {
		t.Errorf("with a server: %v", err)
	}
}
