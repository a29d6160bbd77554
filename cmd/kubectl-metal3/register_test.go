// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// password is in all lists of servers, and never in what is printed.
const password = "pa$$-never-shown"

// TestServerList: everything that is wrong with a list is said, each with its line and column, and no password.
func TestServerList(t *testing.T) {
	there := env.AvailableHost("metal3-system", "there", nil)
	there.Spec.BMC = bmov1alpha1.BMCDetails{Address: "redfish://192.0.2.9/redfish/v1/Systems/1", CredentialsName: "there-bmc"}
	there.Spec.BootMACAddress = "52:54:00:12:34:09"
	going := env.AvailableHost("metal3-system", "going", nil)
	going.Spec.BMC.Address, going.Spec.BootMACAddress, going.DeletionTimestamp = "ipmi://192.0.2.8", "", &metav1.Time{Time: now}
	const header = "name,bmc,username,password,mac,labels\n"
	row := func(name, address, mac, labels string) string {
		return strings.Join([]string{name, address, "admin", password, mac, labels}, ",") + "\n"
	}
	const media, yes = "redfish-virtualmedia://192.0.2.1/1", ""
	for name, tc := range map[string]struct {
		reason, file, content string
		want                  []string
	}{
		"fine": {reason: "virtual media need no MAC address, and two systems may be behind one BMC", content: header +
			row("a", media, yes, "gpu-count=8  rack=r1") + row("b", "redfish-virtualmedia://192.0.2.1/2", "52:54:00:12:34:0A", "")},
		"fine, YAML": {file: "list.yaml", reason: "numbers and words are as they are written", content: "- name: a\n  bmc: ipmi://192.0.2.1\n" +
			"  username: no\n  password: 0123\n  labels: {gpu-count: 8}\n"},
		"empty":     {reason: "a file of another kind", content: "", want: []string{"1:1: there is no server in it"}},
		"no server": {reason: "only a header", content: header, want: []string{"1:1: there is no server in it"}},
		"no header": {reason: "a server's password is no column", content: row("a", media, "", ""), want: []string{
			"1:1: the first line has no column: write the names of columns, separated by commas, out of name, namespace, bmc, username, " +
				"password, credentials, mac, rack, zone, labels, disableCertificateVerification, bootMode, rootDeviceHints.FIELD"}},
		"columns": {reason: "typos", content: "name,adress,name\na,b,c\n", want: []string{
			`1:6: the column "adress" does not exist: write one of name, namespace, bmc, username, password, credentials, mac, rack, zone, ` +
				"labels, disableCertificateVerification, bootMode, rootDeviceHints.FIELD",
			"1:13: the column name is there twice: leave one out",
			"2:1: username is missing: write it, or the name of a Secret that has it into the column credentials",
			"2:1: password is missing: write it, or the name of a Secret that has it into the column credentials",
			"2:1: bmc is missing: write the address of the server's BMC, as redfish-virtualmedia://192.0.2.11/redfish/v1/Systems/1"}},
		"comma": {reason: "nothing of a line is shown that is cut at wrong places, and the others are checked",
			content: header + "a," + media + ",admin,pa,ss,,\n" + row("B", media, "", ""), want: []string{
				"2:1: the line has 7 values, and the first line has 6 columns: put a value with a comma into quotes",
				"3:1: name is \"B\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start " +
					"and end with an alphanumeric character"}},
		"quote": {reason: "what follows cannot be told apart", content: header + "a," + media + ",admin,\"pa\"ss\",,\n", want: []string{
			`2:47: a quote is at a wrong place: put the whole value into quotes, and double those in it, as in "a""b"; the lines from here on ` +
				"were not checked"}},
		"values": {reason: "each by itself", content: header + row("a", "telnet://192.0.2.1", "52-54-00-12-34-01", "gpu count=8") +
			row("b", "redfish://", "", "gpu=a/b") + row("c", "redfish://root:"+password+"@192.0.2.1/1", "52:54:00:12:34:01", "x=1 x=2") +
			row("3f2504e0-4f89-11d3-9a0c-0305e82c3301", "ipmi://192.0.2.5", "", "-=1") + row("d", "redfish://a_b", "52:54:00:12:34:02", ""),
			want: []string{
				`2:3: bmc is "telnet://192.0.2.1", whose scheme Metal3 does not know: write one as redfish://, redfish-virtualmedia://, ` +
					"idrac-virtualmedia:// or ipmi://",
				`2:45: mac is "52-54-00-12-34-01": write six pairs of hexadecimal digits with colons, as 52:54:00:12:34:01`,
				`2:63: labels has "gpu": write KEY=VALUE, with blanks between several`,
				"3:37: mac is missing, and Metal3 needs that of the card which the server boots from for redfish: write it",
				`3:38: the label gpu is "a/b": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and ` +
					"must start and end with an alphanumeric character",
				"4:3: bmc has credentials in it: leave them out, and use the columns username and password",
				`4:88: the label x is "1" and "2": leave one out`,
				`5:1: name is "3f2504e0-4f89-11d3-9a0c-0305e82c3301", a UUID, which Metal3 refuses: write another name`,
				`5:79: the label "-" has a wrong key: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end ` +
					"with an alphanumeric character",
				`6:3: bmc is "redfish://a_b", which Metal3 cannot read: write an address as redfish://192.0.2.11/redfish/v1/Systems/1`}},
		"twice": {reason: "in the list", content: header + row("a", media, "52:54:00:12:34:0a", "") +
			row("a", "redfish://192.0.2.1/1/", "52:54:00:12:34:0A", ""), want: []string{
			`3:1: name is "a", which the server in line 2 has: each server has its own`,
			`3:3: bmc is "redfish://192.0.2.1/1/", which the server in line 2 has: each server has its own`,
			`3:49: mac is "52:54:00:12:34:0A", which the server in line 2 has: each server has its own`}},
		"taken": {reason: "by a host under another name", content: header + row("a", "redfish://192.0.2.9/redfish/v1/Systems/1",
			"52:54:00:12:34:09", ""), want: []string{
			`2:3: bmc is "redfish://192.0.2.9/redfish/v1/Systems/1", which BareMetalHost metal3-system/there has: each server has its own`,
			`2:67: mac is "52:54:00:12:34:09", which BareMetalHost metal3-system/there has: each server has its own`}},
		"another server": {reason: "under the name of one", content: header + row("there", media, "", "") +
			row("going", "ipmi://192.0.2.8", "", ""),
			want: []string{
				`2:7: bmc is "redfish-virtualmedia://192.0.2.1/1", and BareMetalHost metal3-system/there has "redfish://192.0.2.9/redfish/v1/` +
					`Systems/1", so that it would be another server: use another name, or delete the BareMetalHost first`,
				"3:1: BareMetalHost metal3-system/going is being deleted: run this again when it is gone"}},
		"another card": {reason: "under the name of one", content: header + row("there", "redfish://192.0.2.9/redfish/v1/Systems/1",
			"52:54:00:12:34:01", ""), want: []string{
			`2:71: mac is "52:54:00:12:34:01", and BareMetalHost metal3-system/there has "52:54:00:12:34:09", so that it would be another server: ` +
				"use another name, or delete the BareMetalHost first"}},
		"namespace and Secret": {file: "list.yml", reason: "names",
			content: "- {name: a, namespace: A.b, bmc: ipmi://192.0.2.1, credentials: x_y}\n" +
				"- {name: b, bmc: ipmi://192.0.2.2, credentials: x, password: " + password + ", disableCertificateVerification: on}\n", want: []string{
				`1:24: namespace is "A.b": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and ` +
					"end with an alphanumeric character",
				"1:65: credentials is no name of a Secret: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or " +
					"'.', and must start and end with an alphanumeric character",
				"2:49: credentials names a Secret, and there is a username or a password: leave out the one or the others",
				`2:112: disableCertificateVerification is "on": write true, false or nothing`}},
		"boot": {file: "list.yaml", reason: "the disk of the image and the firmware's mode, of each kind of field",
			content: "- {name: a, bmc: ipmi://192.0.2.1, credentials: c, bootMode: UEFISecureBoot, rootDeviceHints.minSizeGigabytes: 480GB}\n" +
				"- {name: b, bmc: ipmi://192.0.2.2, credentials: c, bootMode: uefi, rootDeviceHints.rotational: no}\n" +
				"- {name: c, bmc: ipmi://192.0.2.3, credentials: c, rootDeviceHints.deviceName: /dev/disk/by-id/nvme-x}\n" +
				"- {name: d, bmc: ipmi://192.0.2.4, credentials: c, rootDeviceHints.deviceName: nvme0n1, rootDeviceHints.size: 1}\n" +
				"- {name: e, bmc: ipmi://192.0.2.5, credentials: c, bootMode: legacy, rootDeviceHints.minSizeGigabytes: 0, " +
				"rootDeviceHints.deviceName: \"/dev/disk/by-path/pci-0000:01:00.0-nvme-1\"}\n", want: []string{
				`1:62: bootMode is "UEFISecureBoot", which Metal3 cannot set by ipmi: write a Redfish address into bmc, or another bootMode`,
				`1:112: rootDeviceHints.minSizeGigabytes is "480GB": write a whole number above 0`,
				`2:62: bootMode is "uefi": write UEFI, UEFISecureBoot, legacy or nothing`,
				`2:96: rootDeviceHints.rotational is "no": write true, false or nothing`,
				`3:80: rootDeviceHints.deviceName is "/dev/disk/by-id/nvme-x": write a path in /dev/ or in /dev/disk/by-path/, as /dev/nvme0n1`,
				`4:80: rootDeviceHints.deviceName is "nvme0n1": write a path in /dev/ or in /dev/disk/by-path/, as /dev/nvme0n1`,
				`4:89: the key "rootDeviceHints.size" does not exist: write one of rootDeviceHints.deviceName, rootDeviceHints.hctl, ` +
					"rootDeviceHints.model, rootDeviceHints.vendor, rootDeviceHints.serialNumber, rootDeviceHints.minSizeGigabytes, " +
					"rootDeviceHints.wwn, rootDeviceHints.wwnWithExtension, rootDeviceHints.wwnVendorExtension, rootDeviceHints.rotational",
				`5:104: rootDeviceHints.minSizeGigabytes is "0": write a whole number above 0`}},
		"no YAML": {file: "list.yaml", reason: "what the parser says may have a password", content: "- name: a\n  password: *" + password + "\n",
			want: []string{"2:1: it is not YAML: check the indentation, and put values with other characters than letters and digits into quotes"}},
		"an alias": {file: "list.yaml", reason: "what the parser says has a password", content: "- name: a\n  password: *secret\n",
			want: []string{"1:1: it is not YAML: check the indentation, and put values with other characters than letters and digits into quotes"}},
		"no YAML in line 2": {file: "list.yaml", reason: "a tab", content: "- name: a\n\tbmc: b\n", want: []string{
			"2:1: it is not YAML: check the indentation, and put values with other characters than letters and digits into quotes"}},
		"objects": {file: "list.yaml", reason: "a list is another thing", content: "kind: BareMetalHost\n", want: []string{
			"1:1: it is not a list: write servers as - name: NAME and so on; objects of Kubernetes are for kubectl apply"}},
		"two lists": {file: "list.yaml", reason: "the second would be left out", content: "[]\n---\n[]\n",
			want: []string{"2:1: there is a second document: write one list"}},
		"structure": {file: "list.yaml", reason: "of YAML",
			content: "- a\n- {name: [a], bmc: ipmi://192.0.2.1, credentials: ~, username: &x u, " +
				"username: v, password: *x, labels: a=b, nam: c}\n", want: []string{
				"1:3: it is not a server: write KEY: VALUE, with keys out of name, namespace, bmc, username, password, credentials, mac, rack, zone, " +
					"labels, disableCertificateVerification, bootMode, rootDeviceHints.FIELD",
				"2:3: name is missing: write the name of the BareMetalHost",
				"2:3: password is missing: write it, or the name of a Secret that has it into the column credentials",
				"2:10: name is no text: write one value, in quotes if it begins with another character than a letter or a digit",
				"2:70: the key username is there twice: leave one out",
				"2:93: password is no text: write one value, in quotes if it begins with another character than a letter or a digit",
				"2:105: labels is no map: write KEY: VALUE below it",
				`2:110: the key "nam" does not exist: write one of name, namespace, bmc, username, password, credentials, mac, rack, zone, labels, ` +
					"disableCertificateVerification, bootMode, rootDeviceHints.FIELD"}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.file == "" {
				tc.file = "list.csv"
			}
			list, err := parseServers(tc.file, []byte(tc.content))
			if err != nil {
				t.Fatal(err)
			}
			list.check("metal3-system", []bmov1alpha1.BareMetalHost{*there, *going})
			lines := list.lines()
			var want []string
			for _, line := range tc.want {
				want = append(want, tc.file+":"+line)
			}
			if diff := cmp.Diff(want, lines); diff != "" && len(want)+len(lines) > 0 {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if strings.Contains(strings.Join(lines, "\n"), password) {
				t.Errorf("the password is shown:\n%s", strings.Join(lines, "\n"))
			}
		})
	}
	const want = `--filename is "servers.txt": it must end with .csv, .yaml or .yml`
	if _, err := parseServers("servers.txt", nil); err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// TestHints: each field that Metal3 has for the root device is of a kind that a cell can have.
func TestHints(t *testing.T) {
	for _, hint := range hintsOf(&bmov1alpha1.RootDeviceHints{}) {
		takes := func(text string) bool { return hint.set(text) == "" && hint.String() == text }
		if !slices.ContainsFunc([]string{"/dev/sda", "7", "true"}, takes) {
			t.Errorf("%s, a %T, cannot be set", hint.column, hint.value)
		}
	}
}

// registry is an API server, and a person who has no more rights there than register needs.
type registry struct {
	*env.Environment
	kubeconfig string
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{Environment: env.NewEnvironment(t)}
	r.kubeconfig = r.Kubeconfig(t, "operator")
	r.Give(t,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "metal3-system"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "register"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"metal3.io"}, Resources: []string{"baremetalhosts"}, Verbs: []string{"list", "create", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "patch"}},
		}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "register"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "register"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "operator"}}},
	)
	return r
}

// register writes a list to a file of the present folder and registers it. The password must not be printed.
func (r *registry) register(t *testing.T, file, content string, arguments ...string) (printed string, code int) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, problems bytes.Buffer
	code = run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &problems},
		append([]string{"register", "-f", file, "--kubeconfig", r.kubeconfig, "-n", "metal3-system"}, arguments...))
	printed = out.String() + problems.String()
	if strings.Contains(printed, password) {
		t.Errorf("the password is printed:\n%s", printed)
	}
	return printed, code
}

// objects are the hosts and their Secrets, as they are to be compared.
func (r *registry) objects(t *testing.T) (hosts map[string]bmov1alpha1.BareMetalHostSpec, labels map[string]map[string]string,
	secrets map[string]map[string]string) {
	t.Helper()
	hosts, labels, secrets = map[string]bmov1alpha1.BareMetalHostSpec{}, map[string]map[string]string{}, map[string]map[string]string{}
	allHosts, allSecrets := &bmov1alpha1.BareMetalHostList{}, &corev1.SecretList{}
	for _, list := range []client.ObjectList{allHosts, allSecrets} {
		if err := r.Client.List(t.Context(), list, client.InNamespace("metal3-system")); err != nil {
			t.Fatal(err)
		}
	}
	for _, host := range allHosts.Items {
		hosts[host.Name], labels[host.Name] = host.Spec, host.Labels
	}
	for _, secret := range allSecrets.Items {
		secrets[secret.Name] = map[string]string{"type": string(secret.Type)}
		for key, value := range secret.Data {
			secrets[secret.Name][key] = string(value)
		}
	}
	return hosts, labels, secrets
}

// TestRegister registers servers on a real API server, as a person who may not read Secrets.
func TestRegister(t *testing.T) {
	r := newRegistry(t)
	folder := must(t)(os.Getwd())
	example, err := os.ReadFile("testdata/servers.csv")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	shown := func(name, printed string, arguments ...string) {
		t.Helper()
		here := must(t)(os.Getwd())
		t.Chdir(folder)
		golden(t, name, "$ kubectl metal3 register -f servers.csv"+strings.Join(append([]string{""}, arguments...), " ")+"\n"+printed)
		t.Chdir(here)
	}
	list := string(example)

	t.Run("dry run", func(t *testing.T) {
		printed, code := r.register(t, "servers.csv", list, "--dry-run")
		if hosts, _, secrets := r.objects(t); code != 0 || len(hosts)+len(secrets) > 0 {
			t.Errorf("exit code %d, there are %v and %v: %s", code, hosts, secrets, printed)
		}
		shown("register-dry-run", printed, "--dry-run")
		printed, _ = r.register(t, "servers.csv", list, "--dry-run", "-o", "yaml")
		if !strings.Contains(printed, "bootMACAddress: \"52:54:00:12:34:02\"") || !strings.Contains(printed, "credentials: server-01-bmc") {
			t.Errorf("what would be made is not shown:\n%s", printed)
		}
	})
	t.Run("refused", func(t *testing.T) {
		// The second row is refused by the API server alone: its namespace does not exist.
		printed, code := r.register(t, "list.yaml", "- {name: a, bmc: ipmi://192.0.2.1, username: u, password: "+password+"}\n"+
			"- {name: b, namespace: nowhere, bmc: ipmi://192.0.2.2, credentials: shared}\n")
		want := "list.yaml:2:3: writing BareMetalHost nowhere/b: namespaces \"nowhere\" not found\n" +
			"error: list.yaml has errors, and nothing was written\n"
		if hosts, _, secrets := r.objects(t); code != exitError || printed != want || len(hosts)+len(secrets) > 0 {
			t.Errorf("exit code %d, printed %q, want %q; there are %v and %v", code, printed, want, hosts, secrets)
		}
	})
	t.Run("killed", func(t *testing.T) {
		count := 0
		for number := 1; ; number++ { // of the writes that are done before the command dies
			writes := 0
			dies := errors.New("killed")
			dying := interceptor.NewClient(r.Client, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
					if writes++; writes > number {
						return dies
					}
					return c.Create(ctx, object, options...)
				},
				Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
					if writes++; writes > number {
						return dies
					}
					return c.Patch(ctx, object, patch, options...)
				},
			})
			o := &options{IOStreams: genericiooptions.IOStreams{Out: &bytes.Buffer{}, ErrOut: &bytes.Buffer{}},
				management: genericclioptions.NewConfigFlags(true),
				connect:    func(*genericclioptions.ConfigFlags, string) (client.WithWatch, error) { return dying, nil }}
			command := o.command()
			command.SetArgs([]string{"register", "-f", "servers.csv", "-n", "metal3-system"})
			err := command.ExecuteContext(t.Context())
			hosts, _, secrets := r.objects(t)
			for name, host := range hosts {
				if secrets[host.BMC.CredentialsName] == nil && name != "server-03" { // whose Secret is not ours
					t.Errorf("after %d writes there is host %s without its Secret", number, name)
				}
			}
			count = max(count, len(hosts))
			if err == nil {
				break
			}
			if !strings.Contains(err.Error(), "killed") && !strings.Contains(err.Error(), "errors, and nothing was written") {
				t.Fatal(err)
			}
		}
		if count != 3 {
			t.Errorf("%d hosts were written, want 3", count)
		}
		for _, object := range []client.Object{&bmov1alpha1.BareMetalHost{}, &corev1.Secret{}} {
			if err := r.Client.DeleteAllOf(t.Context(), object, client.InNamespace("metal3-system")); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("created", func(t *testing.T) {
		printed, code := r.register(t, "servers.csv", list)
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, printed)
		}
		shown("register", printed)
		hosts, labels, secrets := r.objects(t)
		first := bmov1alpha1.BareMetalHostSpec{BootMACAddress: "52:54:00:12:34:01", BMC: bmov1alpha1.BMCDetails{
			Address: "redfish-virtualmedia://192.0.2.11/redfish/v1/Systems/1", CredentialsName: "server-01-bmc"}}
		if diff := cmp.Diff(first.BMC, hosts["server-01"].BMC); diff != "" || hosts["server-01"].BootMACAddress != first.BootMACAddress ||
			hosts["server-01"].Online {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"gpu-model": "h100", "gpu-count": "8", "rack": "rack-a", "datacenter": "us-east-1"},
			labels["server-01"]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		want := map[string]map[string]string{}
		for _, name := range []string{"server-01-bmc", "server-02-bmc"} {
			want[name] = map[string]string{"type": "Opaque", "username": "admin", "password": password}
		}
		if diff := cmp.Diff(want, secrets); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("again", func(t *testing.T) {
		before := r.versions(t)
		printed, code := r.register(t, "servers.csv", list)
		if diff := cmp.Diff(before, r.versions(t)); diff != "" || code != 0 || strings.Count(printed, resultUnchanged) != 3 {
			t.Errorf("exit code %d, printed %s, changed (-before +after):\n%s", code, printed, diff)
		}
	})
	t.Run("in use", func(t *testing.T) {
		// A Machine has the server: the list changes labels and the password, and takes nothing away.
		host := &bmov1alpha1.BareMetalHost{}
		if err := r.Client.Get(t.Context(), client.ObjectKey{Namespace: "metal3-system", Name: "server-01"}, host); err != nil {
			t.Fatal(err)
		}
		host.Spec.Online, host.Spec.ConsumerRef = true, &corev1.ObjectReference{Kind: "Machine", Namespace: "acme", Name: "m"}
		host.Spec.Image = &bmov1alpha1.Image{URL: "https://images.example.com/x.qcow2"}
		if err := r.Client.Update(t.Context(), host); err != nil {
			t.Fatal(err)
		}
		printed, code := r.register(t, "servers.csv", "name,bmc,username,password,rack,labels\nserver-01,"+host.Spec.BMC.Address+",admin,"+
			password+"2,rack-b,gpu-count=4\n")
		shown("register-changed", printed)
		hosts, labels, secrets := r.objects(t)
		if diff := cmp.Diff(host.Spec, hosts["server-01"]); diff != "" || code != 0 {
			t.Errorf("exit code %d, (-want +got):\n%s", code, diff)
		}
		if diff := cmp.Diff(map[string]string{"gpu-model": "h100", "gpu-count": "4", "rack": "rack-b", "datacenter": "us-east-1"},
			labels["server-01"]); diff != "" || secrets["server-01-bmc"]["password"] != password+"2" {
			t.Errorf("the Secret is %v, labels (-want +got):\n%s", secrets["server-01-bmc"], diff)
		}
	})
	t.Run("root device", func(t *testing.T) {
		// Each field of rootDeviceHints is a column. One that a later list does not have stays.
		const header = "name,bmc,credentials,bootMode,rootDeviceHints.deviceName,rootDeviceHints.hctl,rootDeviceHints.model," +
			"rootDeviceHints.vendor,rootDeviceHints.serialNumber,rootDeviceHints.minSizeGigabytes,rootDeviceHints.wwn," +
			"rootDeviceHints.wwnWithExtension,rootDeviceHints.wwnVendorExtension,rootDeviceHints.rotational\n"
		const server = "server-09,redfish-virtualmedia://192.0.2.19/redfish/v1/Systems/1,server-09-bmc,"
		if _, code := r.register(t, "servers.csv", header+server+"UEFISecureBoot,/dev/nvme0n1,0:0:0:0,m,v,s,480,w,x,y,false\n"); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		want := bmov1alpha1.BareMetalHostSpec{BootMode: bmov1alpha1.UEFISecureBoot, RootDeviceHints: &bmov1alpha1.RootDeviceHints{
			DeviceName: "/dev/nvme0n1", HCTL: "0:0:0:0", Model: "m", Vendor: "v", SerialNumber: "s", MinSizeGigabytes: 480, WWN: "w",
			WWNWithExtension: "x", WWNVendorExtension: "y", Rotational: ptr.To(false)}}
		registered := func() bmov1alpha1.BareMetalHostSpec {
			hosts, _, _ := r.objects(t)
			return bmov1alpha1.BareMetalHostSpec{BootMode: hosts["server-09"].BootMode, RootDeviceHints: hosts["server-09"].RootDeviceHints}
		}
		if diff := cmp.Diff(want, registered()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		printed, code := r.register(t, "servers.csv",
			"name,bmc,credentials,bootMode,rootDeviceHints.minSizeGigabytes,rootDeviceHints.rotational\n"+server+"legacy,960,true\n")
		if code != 0 || !strings.Contains(printed, `bootMode: "UEFISecureBoot" -> "legacy", rootDeviceHints.minSizeGigabytes: "480" -> "960", `+
			`rootDeviceHints.rotational: "false" -> "true"`) {
			t.Errorf("exit code %d, printed %s", code, printed)
		}
		want.BootMode, want.RootDeviceHints.MinSizeGigabytes, want.RootDeviceHints.Rotational = bmov1alpha1.Legacy, 960, ptr.To(true)
		if diff := cmp.Diff(want, registered()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("wrong lines", func(t *testing.T) {
		before := r.versions(t)
		printed, code := r.register(t, "servers.csv", "name,bmc,username,password,mac\n"+
			"server-04,redfish://192.0.2.14/redfish/v1/Systems/1,admin,"+password+",52-54-00-12-34-04\n"+
			"server-05,redfish-virtualmedia://192.0.2.11/redfish/v1/Systems/1,admin,,\n"+
			"server-06,ipmi://192.0.2.16,admin,"+password+",\n")
		if diff := cmp.Diff(before, r.versions(t)); diff != "" || code != exitError {
			t.Errorf("exit code %d, changed (-before +after):\n%s", code, diff)
		}
		shown("register-wrong", printed)
	})
	t.Run("by hand", func(t *testing.T) {
		// Somebody else has changed the password: the list, which may be old, does not win.
		secret := &corev1.Secret{ObjectMeta: objectMeta("metal3-system", "server-02-bmc")}
		change := client.RawPatch("application/merge-patch+json", []byte(`{"stringData": {"password": "new"}}`))
		if err := r.Client.Patch(t.Context(), secret, change,
			client.FieldOwner("kubectl-edit")); err != nil {
			t.Fatal(err)
		}
		printed, code := r.register(t, "servers.csv", list)
		if code != exitError || !strings.Contains(printed, `servers.csv:3:1: writing Secret metal3-system/server-02-bmc: Apply failed with 1 `+
			`conflict: conflict with "kubectl-edit" using v1: .data.password: `) {
			t.Errorf("exit code %d, printed %s", code, printed)
		}
	})
	t.Run("rights", func(t *testing.T) {
		r.kubeconfig = r.Kubeconfig(t, "somebody")
		printed, code := r.register(t, "servers.csv", list)
		if code != exitError || !strings.Contains(printed, "error: you may not list baremetalhosts.metal3.io in the management cluster") ||
			!strings.Contains(printed, `apiGroups ["metal3.io"], resources ["baremetalhosts"], verbs [list]`) {
			t.Errorf("exit code %d, printed %s", code, printed)
		}
	})
}

// versions are the resource versions of all hosts and Secrets.
func (r *registry) versions(t *testing.T) map[string]string {
	t.Helper()
	versions := map[string]string{}
	hosts, secrets := &bmov1alpha1.BareMetalHostList{}, &corev1.SecretList{}
	for _, list := range []client.ObjectList{hosts, secrets} {
		if err := r.Client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	for _, host := range hosts.Items {
		versions["host "+nameOf(&host)] = host.ResourceVersion
	}
	for _, secret := range secrets.Items {
		versions["secret "+nameOf(&secret)] = secret.ResourceVersion
	}
	return versions
}

// TestListsOfPage: the lists that docs/kubectl-plugin.md shows are fine.
func TestListsOfPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/kubectl-plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	servers := 0
	for _, block := range strings.Split(string(page), "```csv\n")[1:] {
		content, _, _ := strings.Cut(block, "```")
		list, err := parseServers("page.csv", []byte(content))
		if err != nil {
			t.Fatal(err)
		}
		servers += len(list.check("metal3-system", nil))
		if len(list.problems) > 0 {
			t.Errorf("%s:\n%s", strings.Join(list.lines(), "\n"), content)
		}
	}
	if servers != 4 {
		t.Errorf("%d servers", servers)
	}
}

// TestRegisterExamples runs the examples of --help.
func TestRegisterExamples(t *testing.T) {
	content, err := os.ReadFile("testdata/servers.csv")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for file, content := range map[string]string{"servers.csv": string(content),
		"servers.yaml": "- {name: a, bmc: ipmi://192.0.2.1, credentials: c}"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines((&options{management: genericclioptions.NewConfigFlags(true)}).registerCommand().Example) {
		words := strings.Fields(line)[2:]
		if out, err := write(t, cluster(interceptor.Funcs{}), "", words...); err != nil {
			t.Errorf("%s: %v: %s", line, err, out)
		}
	}
}

func must(t *testing.T) func(string, error) string {
	return func(text string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Clean(text)
	}
}
