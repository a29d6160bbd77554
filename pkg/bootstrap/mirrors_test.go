// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/plan"
)

func mirrorOf(upstream, url string) []v1alpha1.Mirror {
	return []v1alpha1.Mirror{{Upstream: upstream, URL: url}}
}

func TestCheckMirrors(t *testing.T) {
	const fine = "https://mirror.example.com"
	for name, tc := range map[string]struct {
		reason  string
		mirrors *v1alpha1.Mirrors
		want    []string
	}{
		"None":  {"they are optional", nil, nil},
		"Empty": {"so are their fields", &v1alpha1.Mirrors{}, nil},
		"Debian": {"a mirror of signed packages needs no https",
			&v1alpha1.Mirrors{Packages: mirrorOf("deb.debian.org/debian", "http://192.0.2.1:8080/debian/")}, nil},
		"Kubernetes": {"the colons are in its path",
			&v1alpha1.Mirrors{Packages: mirrorOf("pkgs.k8s.io/core:/stable:", "https://[2001:db8::1]:8443/core:/stable:")}, nil},
		"Registries": {"all but those that are listed",
			&v1alpha1.Mirrors{Images: slices.Concat(mirrorOf("registry.example.com:5000", "http://a"), mirrorOf("_default", fine+"/v2/all"))}, nil},
		"CABundle": {"as a mirror's owner hands it out", &v1alpha1.Mirrors{CABundle: "ours:\n" + string(newCA(t))}, nil},
		"Scheme": {"the image may have https or http", &v1alpha1.Mirrors{Packages: mirrorOf("https://deb.debian.org/debian", fine)},
			[]string{`spec.mirrors.packages[0].upstream: Invalid value: "https://deb.debian.org/debian": is not the beginning of the URLs of a ` +
				`repository: write it without https://, such as deb.debian.org/debian`}},
		"NoKey": {"anyone on the way could give the server another key",
			&v1alpha1.Mirrors{Packages: mirrorOf("pkgs.k8s.io/core:/stable:", "http://mirror.example.com")},
			[]string{`spec.mirrors.packages[0].url: Invalid value: "http://mirror.example.com": is not https, and servers fetch the key`}},
		"Repository": {"containerd knows mirrors of registries only", &v1alpha1.Mirrors{Images: mirrorOf("registry.k8s.io/pause", fine)},
			[]string{`spec.mirrors.images[0].upstream: Invalid value: "registry.k8s.io/pause": is not a registry: write it as in references`}},
		"Directory": {"its name is that of a directory", &v1alpha1.Mirrors{Images: mirrorOf("..", fine)},
			[]string{`spec.mirrors.images[0].upstream: Invalid value: "..": is not a registry`}},
		"URL": {"all mirrors are checked",
			&v1alpha1.Mirrors{Packages: mirrorOf("a", "mirror.example.com"),
				Images: slices.Concat(mirrorOf("a", "https://a/?b"), mirrorOf("b", "https://"))},
			[]string{`spec.mirrors.packages[0].url: Invalid value: "mirror.example.com": is not the URL of a mirror: write it with https or http`,
				`spec.mirrors.images[0].url: Invalid value: "https://a/?b": is not the URL of a mirror`,
				`spec.mirrors.images[1].url: Invalid value: "https://"`}},
		"User": {"tenants' providers read NodeProviders", &v1alpha1.Mirrors{Images: mirrorOf("a", "https://me:hunter2@mirror.example.com")},
			[]string{`spec.mirrors.images[0].url: Invalid value: "https://me:xxxxx@mirror.example.com": has a user, whom all who see`}},
		"NoCertificates": {"the file has a key in it, or nothing", &v1alpha1.Mirrors{CABundle: "secret"},
			[]string{`spec.mirrors.caBundle: Invalid value: has no certificates in PEM: write them with their lines`}},
	} {
		t.Run(name, func(t *testing.T) {
			got := CheckMirrors(field.NewPath("spec", "mirrors"), tc.mirrors)
			if len(got) != len(tc.want) {
				t.Fatalf("%s: got %v, want %q", tc.reason, got, tc.want)
			}
			for i, want := range tc.want {
				if !strings.HasPrefix(got[i].Error(), want) || strings.Contains(got[i].Error(), "hunter2") {
					t.Errorf("%s: got %v\nwant %s", tc.reason, got[i], want)
				}
			}
		})
	}
}

// TestRenderMirrors: the manager has the NodeProvider's mirrors in user data, also of a Machine that joins nothing, and refuses what no
// webhook has.
func TestRenderMirrors(t *testing.T) {
	mirrors := &v1alpha1.Mirrors{Packages: mirrorOf("deb.debian.org/debian", "https://mirror.example.com")}
	p := &plan.Plan{Provider: "metal", Mirrors: mirrors}
	documents, err := RenderPlan(p, exampleValues().NodeClaim, exampleHost(), nil, nil)
	if err != nil || !strings.Contains(string(documents.UserData), ",https://mirror.example.com\\1,g\n") {
		t.Errorf("%v\n%s", err, documents.UserData)
	}
	mirrors.Packages[0].URL = "mirror"
	_, err = RenderPlan(p, exampleValues().NodeClaim, exampleHost(), nil, nil)
	const want = `NodeProvider metal: spec.mirrors.packages[0].url: Invalid value: "mirror"`
	if problem, _ := plan.Problem(err); !strings.HasPrefix(problem, want) {
		t.Errorf("got %v", err)
	}
}

// Sources as images of distributions have them.
const (
	debianSources = "deb http://deb.debian.org/debian bookworm main\ndeb http://deb.debian.org/debian-security bookworm-security main\n"
	debianMirrors = "https://deb.debian.org/debian\n"
	ubuntuSources = "Types: deb\nURIs: http://archive.ubuntu.com/ubuntu/ http://other.example.com/ubuntu\nSuites: noble\n"
	rockySources  = "[baseos]\nmirrorlist=https://mirrors.rockylinux.org/mirrorlist?repo=BaseOS-$releasever\n" +
		"#baseurl=http://dl.rockylinux.org/$contentdir/$releasever/BaseOS/$basearch/os/\n[local]\nbaseurl=file:///packages\n" + unmirrored
	// unmirrored are repositories without a mirror, in a file that has one with it.
	unmirrored = "[epel]\nmetalink=https://mirrors.fedoraproject.org/metalink?repo=epel-9\n#baseurl=https://download.example.com/epel/9/\n" +
		"[both]\nmirrorlist=https://other.example.com/list\nbaseurl=https://other.example.com/both/\n"
)

// TestServersUseMirrors has cloud-init run the script: before the user's commands, and before the server is prepared.
func TestServersUseMirrors(t *testing.T) {
	authority := string(newCA(t))
	mirrors := &v1alpha1.Mirrors{
		Packages: slices.Concat(mirrorOf("deb.debian.org/debian", "https://mirror.example.com/debian/"),
			mirrorOf("archive.ubuntu.com/ubuntu", "http://mirror.example.com/ubuntu"),
			mirrorOf("dl.rockylinux.org", "https://mirror.example.com/rocky"),
			mirrorOf("pkgs.k8s.io", "https://mirror.example.com/kubernetes")),
		Images: slices.Concat(mirrorOf("registry.k8s.io", "https://mirror.example.com:5000"),
			mirrorOf("_default", "https://mirror.example.com/v2/all/")),
		CABundle: "text\n" + JoinScriptEnd + "\nrm -rf /\n" + authority,
	}
	script, err := mirrorsScriptOf(mirrors)
	if err != nil {
		t.Fatal(err)
	}
	userData, err := UserData([]byte("#cloud-config\nruncmd: [curl one]\n"), nil, nil, script, mustJoin(t, exampleJoin(t)))
	if err != nil {
		t.Fatal(err)
	}
	server := func(programs ...string) toBoot {
		image := newNode(t)
		for _, program := range programs {
			image.program(program, "")
		}
		image.write("/etc/apt/sources.list", debianSources)
		image.write("/etc/apt/mirrors/debian.list", debianMirrors)
		image.write("/etc/apt/sources.list.d/ubuntu.sources", ubuntuSources)
		image.write("/etc/yum.repos.d/rocky.repo", rockySources)
		return toBoot{image, userData}
	}
	without := server()
	without.image.program("update-ca-trust", "exit 1")
	booted := bootAll(t, server("update-ca-certificates", "update-ca-trust"), server("update-ca-trust"), without)

	for i, update := range []string{"update-ca-certificates", "update-ca-trust", "update-ca-trust"} {
		// What warns of mirrors that are not used is in an image that is ready.
		want := slices.Concat([]string{update, "curl one"}, slices.Insert(slices.Clone(joinCommands), 2, "containerd config dump"))
		if diff := cmp.Diff(want, booted[i].runs); diff != "" {
			t.Errorf("server %d: the commands (-want +got):\n%s", i, diff)
		}
	}
	if len(booted[0].Warnings)+len(booted[1].Warnings) > 0 || len(booted[2].Warnings) == 0 {
		t.Errorf("cloud-init warns: %q, %q, %q", booted[0].Warnings, booted[1].Warnings, booted[2].Warnings)
	}
	for path, want := range map[string]string{
		"/usr/local/share/ca-certificates/karpenter-metal3-mirrors.crt": authority,
		"/var/lib/karpenter-metal3/mirrors-ca.crt":                      authority,
		"/etc/apt/sources.list": strings.Replace(debianSources, "http://deb.debian.org/debian ",
			"https://mirror.example.com/debian ", 1),
		"/etc/apt/mirrors/debian.list":           "https://mirror.example.com/debian\n",
		"/etc/apt/sources.list.d/ubuntu.sources": strings.Replace(ubuntuSources, "archive.ubuntu", "mirror.example", 1),
		"/etc/yum.repos.d/rocky.repo": "[baseos]\n#mirrorlist=https://mirrors.rockylinux.org/mirrorlist?repo=BaseOS-$releasever\n" +
			"baseurl=https://mirror.example.com/rocky/$contentdir/$releasever/BaseOS/$basearch/os/\n[local]\n" +
			"baseurl=file:///packages\n" + unmirrored,
		"/etc/containerd/certs.d/registry.k8s.io/hosts.toml": "[host.\"https://mirror.example.com:5000\"]\n  capabilities = [\"pull\", " +
			"\"resolve\"]\n  ca = \"/var/lib/karpenter-metal3/mirrors-ca.crt\"\n",
		"/etc/containerd/certs.d/_default/hosts.toml": "[host.\"https://mirror.example.com/v2/all\"]\n  capabilities = [\"pull\", " +
			"\"resolve\"]\n  ca = \"/var/lib/karpenter-metal3/mirrors-ca.crt\"\n  override_path = true\n",
	} {
		if diff := cmp.Diff(want, booted[0].read(path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	if got := booted[1].read("/etc/pki/ca-trust/source/anchors/karpenter-metal3-mirrors.crt"); got != authority {
		t.Errorf("a server with packages of RPM trusts %q", got)
	}
}

// TestServersWithoutCAProgram: the error says what the image lacks.
func TestServersWithoutCAProgram(t *testing.T) {
	_, out, err := newImage(t).run(useMirrorsScript)
	if err != nil {
		t.Errorf("without certificates it needs nothing: %v\n%s", err, out)
	}
	image := newImage(t)
	image.write(mirrorsCAPath, "certificates")
	if _, out, err := image.run(useMirrorsScript); err == nil || !strings.Contains(out, "use an image that has the package ca-certificates") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestMirrorsAreNoCommands: of random text, what is accepted is text to the shell, to sed and to containerd.
func TestMirrorsAreNoCommands(t *testing.T) {
	random, accepted, refused := rand.New(rand.NewPCG(1, 2)), 0, 0
	hostile := []string{"'", "\"", "`id`", "$(id)", "\\", "\\1", "|", "&", ";", ",", "\n", " ", "#", "*", "[", "\n" + JoinScriptEnd + "\n"}
	text := func(pieces ...string) string {
		if random.IntN(4) == 0 {
			pieces = hostile
		}
		return pieces[random.IntN(len(pieces))]
	}
	inPath := []string{"/y", "b.c", ":", "%41", "+", "@", "~", "..", "_"}
	for range 60 {
		mirrors := &v1alpha1.Mirrors{Packages: mirrorOf("a/z"+text(inPath...)+text(inPath...), "https://a/z"+text(inPath...)),
			Images: mirrorOf("a"+text("a", "-b", ".c", ":1"), "https://a/z"+text(inPath...))}
		script, err := mirrorsScriptOf(mirrors)
		if err != nil {
			refused++
			continue
		}
		accepted++
		upstream, url := mirrors.Packages[0].Upstream, strings.TrimRight(mirrors.Packages[0].URL, "/")
		image := newImage(t)
		image.write("/etc/apt/sources.list", "deb http://"+upstream+"/x "+upstream+"\n")
		if runs, out, err := image.run(string(script)); err != nil || len(runs) != 1 || runs[0] != "" || strings.TrimSpace(out) != "" {
			t.Fatalf("%+v: it runs %q, %v\n%s", mirrors, runs, err, out)
		}
		if got, want := image.read("/etc/apt/sources.list"), "deb "+url+"/x "+upstream+"\n"; got != want {
			t.Fatalf("%+v: the sources are %q, want %q", mirrors, got, want)
		}
		if got := image.read("/etc/containerd/certs.d/" + mirrors.Images[0].Upstream + "/hosts.toml"); strings.Count(got, "\"") != 6 {
			t.Fatalf("%+v: the configuration of containerd is %s", mirrors, got)
		}
	}
	if accepted < 10 || refused < 10 {
		t.Errorf("%d of the texts are accepted, and %d refused: too few to show something", accepted, refused)
	}
}
