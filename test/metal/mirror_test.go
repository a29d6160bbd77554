// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/plan"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/images"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/images/archive"
)

// TestServerJoinsByMirror: a server whose image lacks containerd, kubelet and kubeadm joins, and runs a pod, with nothing in its network
// but a mirror and the API server.
func TestServerJoinsByMirror(t *testing.T) {
	w := newClusterFixture(t, ipv4Network())
	w.startCluster(t, cluster.Options{})
	release, err := cluster.Binaries{bin}.KubernetesVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	minor := fmt.Sprintf("v%d.%d", release.Major(), release.Minor())
	m := w.startMirror(t)
	m.addKubernetes(t, minor)
	join := userData(t, bootstrap.Join{
		NodeName: nodeName, ProviderID: providerID, APIServerEndpoint: w.endpoint(), KubernetesVersion: minor,
		Token: joinToken(t, w.Client, nodeName, v1alpha1.JoinKubeadm), Labels: map[string]string{"rack": "r1"},
		Taints: []corev1.Taint{{Key: "example.com/new", Effect: corev1.TaintEffectNoSchedule}},
	}, w.CertificateAuthority(), "")
	documents, err := bootstrap.RenderPlan(&plan.Plan{
		Set: properties.Merge(properties.Layer{Values: map[string]string{v1alpha1.PropertyUserData: m.document(t)}}), Mirrors: m.mirrors(),
	}, &v1alpha1.Machine{}, &bmov1alpha1.BareMetalHost{Spec: bmov1alpha1.BareMetalHostSpec{BootMACAddress: serverMAC}}, nil, join)
	if err != nil {
		t.Fatal(err)
	}
	w.install(t, documents.UserData, nil)

	server := w.turnOn(t, container)
	w.checkJoined(t, w.untilNodeReady(t, w.Client), imageSum)
	pod := workload(nil)
	pod.Containers[0].ImagePullPolicy = corev1.PullIfNotPresent
	w.createPod(t, w.Client, "work", pod)
	w.untilPodRuns(t, "work")
	w.logf("log of the pod: %s", w.podLog(t, w.kube, "work"))
	m.checkUsed(t, minor)
	before, err := os.ReadFile(filepath.Join(w.server.Dir, "disk", "upper", "var", "log", "before-join"))
	if want := "curl: (6) Could not resolve host: pkgs.k8s.io\n"; err != nil || string(before) != want {
		t.Errorf("before it joins, the server says %q (%v) of what it has and reaches, want %q", before, err, want)
	}
	w.turnOff(t, server)
}

// mirror serves packages of Debian and of Kubernetes, and images, by HTTPS with a certificate of its own CA. It signs the packages.
type mirror struct {
	// dir is what it serves of packages, and rootfs where their content comes from.
	dir, rootfs string
	url         string
	authority   []byte
	// debian is where the image has its packages from, without the scheme.
	debian string
	// signer has the key by which packages are signed, and key is its public part.
	signer *openpgp.Entity
	key    []byte
	// manifests of images by name, and the blobs of all by digest.
	manifests, blobs map[string][]byte
	logf             func(format string, args ...any)
	mu               sync.Mutex
	fetched          []string
}

// startMirror serves Debian's packages of make server-image.
func (w *fixture) startMirror(t *testing.T) *mirror {
	t.Helper()
	image := filepath.Join(bin, "server-image")
	m := &mirror{dir: filepath.Join(w.dir, "mirror"), rootfs: filepath.Join(image, "rootfs"), logf: w.logf,
		manifests: map[string][]byte{}, blobs: map[string][]byte{}}
	sources, err := os.ReadFile(filepath.Join(m.rootfs, "etc/apt/sources.list"))
	if err != nil {
		t.Fatal(err)
	}
	_, m.debian, _ = strings.Cut(strings.Fields(string(sources))[1], "://")
	m.makeKey(t)
	if err := os.CopyFS(filepath.Join(m.dir, "debian", "pool"), os.DirFS(filepath.Join(image, "mirror"))); err != nil {
		t.Fatalf("there are no packages of Debian (%v): make them with `make server-image`", err)
	}
	m.index(t, "debian", "dists/bookworm", "main/binary-amd64", "Codename: bookworm\nComponents: main\nArchitectures: amd64\n")
	m.serve(t, w.network.Address.Addr().String())
	w.logf("a mirror serves packages and images at %s", m.url)
	return m
}

// addKubernetes adds packages of Kubernetes' programs that the server image has, and images.
func (m *mirror) addKubernetes(t *testing.T, minor string) {
	t.Helper()
	kubernetes := m.kubernetes(minor)
	m.makePackage(t, kubernetes, "kubelet", "kubernetes-cni", "usr/bin/kubelet", "etc/systemd/system/kubelet.service",
		"etc/systemd/system/kubelet.service.d/10-kubeadm.conf")
	m.makePackage(t, kubernetes, "kubeadm", "kubernetes-cni", "usr/bin/kubeadm")
	m.makePackage(t, kubernetes, "kubernetes-cni", "libc-bin", "opt/cni/bin/host-local", "opt/cni/bin/loopback", "opt/cni/bin/portmap",
		"opt/cni/bin/ptp")
	m.index(t, kubernetes, ".", ".", "")
	writeFile(t, filepath.Join(m.dir, kubernetes, "Release.key"), m.key, 0o600)
	for _, name := range []string{images.Pause, images.Workload} {
		m.addImage(t, name, filepath.Join(bin, "server-image", "images", "bin", name))
	}
}

// kubernetes is where the mirror has the packages of a version of Kubernetes: below a directory, as pkgs.k8s.io has them.
func (m *mirror) kubernetes(minor string) string { return "kubernetes/core:/stable:/" + minor + "/deb" }

// mirrors are what the platform sets.
func (m *mirror) mirrors() *v1alpha1.Mirrors {
	return &v1alpha1.Mirrors{
		Packages: []v1alpha1.Mirror{{Upstream: m.debian, URL: m.url + "/debian"}, {Upstream: "pkgs.k8s.io", URL: m.url + "/kubernetes"}},
		Images:   []v1alpha1.Mirror{{Upstream: "registry.k8s.io", URL: m.url + "/v2/registry.k8s.io"}, {Upstream: "_default", URL: m.url}},
		CABundle: string(m.authority),
	}
}

// document is user data. It has the key by which the mirror signs in place of Debian, the network of pods, which a DaemonSet brings
// elsewhere, and what makes the image one that lacks containerd, kubelet and kubeadm. containerd is told that it is in a container, as
// the image's own is.
func (m *mirror) document(t *testing.T) string {
	t.Helper()
	files := map[string]string{
		mirrorKey: string(m.key),
		"/etc/cni/net.d/10-pods.conflist": `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": ` +
			`{"type": "host-local", "subnet": "10.244.0.0/24"}}]}`,
		"/etc/systemd/system/containerd.service.d/15-container.conf": "[Service]\nExecStartPre=/usr/local/sbin/adapt-containerd\n" +
			"ExecStart=\nExecStart=/usr/bin/containerd --config /run/containerd.toml\n",
		"/usr/local/sbin/adapt-containerd": adaptContainerd,
	}
	var written []map[string]string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		written = append(written, map[string]string{"path": name, "content": files[name], "permissions": "0755"})
	}
	document, err := yaml.Marshal(map[string]any{"write_files": written, "runcmd": []string{removeRuntime}})
	if err != nil {
		t.Fatal(err)
	}
	return "#cloud-config\n" + string(document)
}

const (
	// mirrorKey is where apt finds the key of the mirror.
	mirrorKey       = "/etc/apt/trusted.gpg.d/mirror.asc"
	adaptContainerd = `#!/bin/sh
set -eu
sed 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' /etc/containerd/config.toml >/run/containerd.toml
if [ -d /sys/fs/cgroup/memory ]; then sed -i 's/SystemdCgroup = true/SystemdCgroup = false/' /run/containerd.toml; fi
`
	// removeRuntime leaves what the server is to install anew, and says in a file what is left and what the internet answers. Where
	// kubeadm is wrapped, it is again once it is installed.
	removeRuntime = `set -eu
systemctl disable --now kubelet containerd container-images device-plugin
if [ -e /usr/local/bin/kubeadm ]; then
  mv /usr/local/bin/kubeadm /usr/local/lib/
  echo 'DPkg::Post-Invoke {"test ! -e /usr/bin/kubeadm || ln -sf /usr/local/lib/kubeadm /usr/local/bin/";};' >/etc/apt/apt.conf.d/90kubeadm
fi
dpkg --purge containerd runc
rm -rf /usr/bin/containerd* /usr/bin/ctr /usr/bin/kubelet /usr/bin/kubeadm /opt/cni/bin /etc/containerd/config.toml /var/lib/containerd/* \
  /etc/systemd/system/kubelet.service /etc/systemd/system/kubelet.service.d/10-kubeadm.conf
systemctl daemon-reload
exec >/var/log/before-join 2>&1
for name in containerd runc kubelet kubeadm; do if command -v "$name"; then echo "$name is left"; fi; done
curl --silent --show-error https://pkgs.k8s.io/ || true
`
)

// checkUsed fails if the server has not had each package and each image from the mirror.
func (m *mirror) checkUsed(t *testing.T, minor string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, want := range []string{
		"/debian/dists/bookworm/InRelease", "/debian/pool/containerd_", "/debian/pool/runc_",
		path.Join("/", m.kubernetes(minor), "Release.key"), path.Join("/", m.kubernetes(minor), "InRelease"),
		path.Join("/", m.kubernetes(minor), "pool/kubelet.deb"), path.Join("/", m.kubernetes(minor), "pool/kubeadm.deb"),
		path.Join("/", m.kubernetes(minor), "pool/kubernetes-cni.deb"), "/v2/registry.k8s.io/pause/manifests", "/v2/workload/manifests",
	} {
		if !slices.ContainsFunc(m.fetched, func(fetched string) bool { return strings.HasPrefix(fetched, want) }) {
			t.Errorf("%s was not fetched from the mirror, but %q", want, m.fetched)
		}
	}
}

// makeKey makes the key by which packages are signed.
func (m *mirror) makeKey(t *testing.T) {
	t.Helper()
	var err error
	if m.signer, err = openpgp.NewEntity("mirror", "", "mirror@example.com", nil); err != nil {
		t.Fatal(err)
	}
	m.key = armored(t, openpgp.PublicKeyType, m.signer.Serialize)
}

// armored is what a function writes, as text.
func armored(t *testing.T, kind string, write func(io.Writer) error) []byte {
	t.Helper()
	var text bytes.Buffer
	encoder, err := armor.Encode(&text, kind, nil)
	if err == nil {
		err = errors.Join(write(encoder), encoder.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

// sign returns the text with its signature.
func (m *mirror) sign(t *testing.T, text string) []byte {
	t.Helper()
	var signed bytes.Buffer
	writer, err := clearsign.Encode(&signed, m.signer.PrivateKey, nil)
	if err == nil {
		_, err = io.WriteString(writer, text)
		err = errors.Join(err, writer.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return signed.Bytes()
}

// makePackage makes a package of files of the server image. Units of an administrator become those of a package.
func (m *mirror) makePackage(t *testing.T, directory, name, depends string, files ...string) {
	t.Helper()
	tree, pool := t.TempDir(), filepath.Join(m.dir, directory, "pool")
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(m.rootfs, file))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(tree, strings.Replace(file, "etc/systemd", "usr/lib/systemd", 1)), content, 0o755)
	}
	control := fmt.Sprintf("Package: %s\nVersion: 99\nArchitecture: amd64\nDepends: %s\nMaintainer: mirror@example.com\n"+
		"Description: of the server image\n", name, depends)
	writeFile(t, filepath.Join(tree, "DEBIAN", "control"), []byte(control), 0o644)
	if err := errors.Join(os.Chmod(filepath.Join(tree, "DEBIAN"), 0o755), os.MkdirAll(pool, 0o755)); err != nil {
		t.Fatal(err)
	}
	run(t, "dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, filepath.Join(pool, name+".deb"))
}

// index lists the packages of a directory, and signs the list.
func (m *mirror) index(t *testing.T, directory, suite, component, header string) {
	t.Helper()
	packages, err := filepath.Glob(filepath.Join(m.dir, directory, "pool", "*.deb"))
	if err != nil || len(packages) == 0 {
		t.Fatalf("%s has no packages (%v)", directory, err)
	}
	var list bytes.Buffer
	for _, file := range packages {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&list, "%sFilename: pool/%s\nSize: %d\nSHA256: %x\n\n", run(t, "dpkg-deb", "--field", file), filepath.Base(file),
			len(content), sha256.Sum256(content))
	}
	suite, name := filepath.Join(m.dir, directory, suite), path.Join(component, "Packages")
	writeFile(t, filepath.Join(suite, name), list.Bytes(), 0o600)
	release := fmt.Sprintf("%sDate: %s\nSHA256:\n %x %d %s\n", header, time.Now().UTC().Format("Mon, 02 Jan 2006 15:04:05 UTC"),
		sha256.Sum256(list.Bytes()), list.Len(), name)
	writeFile(t, filepath.Join(suite, "InRelease"), m.sign(t, release), 0o600)
}

// run runs a program, and returns its output.
func run(t *testing.T, program string, args ...string) []byte {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	var problem bytes.Buffer
	command.Stderr = &problem
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, problem.Bytes())
	}
	return output
}

func (m *mirror) addImage(t *testing.T, name, program string) {
	t.Helper()
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	manifest, blobs, err := archive.Image{Name: name, Program: content, Architecture: "amd64"}.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	m.manifests[name] = manifest
	maps.Copy(m.blobs, blobs)
}

// serve serves all at a free port of the address.
func (m *mirror) serve(t *testing.T, address string) {
	t.Helper()
	certificate, key, err := certutil.GenerateSelfSignedCertKey(address, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.authority = certificate // the CA's is among them
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(m.dir)))
	mux.HandleFunc("/v2/", m.serveImage)
	server := &httptest.Server{Listener: listener, TLS: &tls.Config{Certificates: []tls.Certificate{pair}},
		Config: &http.Server{Handler: m.noting(mux), ReadHeaderTimeout: time.Minute}}
	server.StartTLS()
	t.Cleanup(server.Close)
	m.url = server.URL
}

// serveImage is the part of a registry that is needed to pull: each image has one manifest, whatever its tag.
func (m *mirror) serveImage(response http.ResponseWriter, request *http.Request) {
	directory, reference := path.Split(request.URL.Path)
	content, kind := m.blobs[reference], "application/octet-stream"
	if name, found := strings.CutSuffix(directory, "/manifests/"); found {
		content, kind = m.manifests[path.Base(name)], archive.ManifestType
	}
	if content == nil {
		http.NotFound(response, request)
		return
	}
	response.Header().Set("Content-Type", kind)
	response.Header().Set("Docker-Content-Digest", fmt.Sprintf("sha256:%x", sha256.Sum256(content)))
	http.ServeContent(response, request, "", time.Time{}, bytes.NewReader(content))
}

// noting notes what is asked for, and logs what is for the first time.
func (m *mirror) noting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		m.mu.Lock()
		if !slices.Contains(m.fetched, request.URL.Path) {
			m.fetched = append(m.fetched, request.URL.Path)
			m.logf("the server asks the mirror for %s", request.URL.Path)
		}
		m.mu.Unlock()
		next.ServeHTTP(response, request)
	})
}
