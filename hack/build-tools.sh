#!/usr/bin/env bash
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the programs that the sandbox and the tests run, from the Go modules in tools/, into bin/.
# A program is built again only when its module's go.mod or go.sum, its flags, its own source in tools/, or Go itself changed.
# KUBERNETES_BINARIES is the address of a mirror of Kubernetes' releases, such as https://dl.k8s.io/release: programs of Kubernetes are
# downloaded from there instead, and checked against their checksums. What the mirror does not have is built.
#
# usage: build-tools.sh GROUP...      GROUP is "cluster" (what a sandbox runs), "node" (what a server needs to be a node), "dev"
#                                     (generators, linters, and what the tests of the pages type), "upstream" (Karpenter's own suites, and
#                                     Karpenter with its own provider), "dra" (vCluster, and a driver of devices), "kueue" (with JobSet and
#                                     LeaderWorkerSet), "otel" (a collector of traces), "oidc" (an identity provider, and a proxy that signs people in),
#                                     "prometheus" (with promtool), "site" (the documentation as a site), "kind", "kind-node" (what a node image of
#                                     kind needs beside what a server needs), or "versions/1.37" (a control plane of that version of Kubernetes,
#                                     which tools/versions has)
set -euo pipefail
cd "$(dirname "$0")/.."
hack/check-go.sh

bin="${PWD}/bin"
stamps="${bin}/.stamps"
mkdir -p "${stamps}"
# A second make at the same time waits for what the first one builds.
exec {lock}>"${stamps}/.lock"
flock "${lock}"
export CGO_ENABLED=0

# read_kubernetes MODULE: sets kubernetes, major and minor to the version in tools/MODULE, and stamped to linker flags that say so.
# Kubernetes components reject each other without it. The same flags for each program of a module: otherwise they would not share the
# build cache.
read_kubernetes() {
  kubernetes=$(awk '{sub(/^require /, "")} $1 == "k8s.io/kubernetes" && $2 ~ /^v/ {print $2; exit}' "tools/$1/go.mod")
  major=${kubernetes#v}; major=${major%%.*}
  minor=${kubernetes#v*.}; minor=${minor%%.*}
  local version=k8s.io/component-base/version
  stamped="-s -w -X ${version}.gitVersion=${kubernetes} -X ${version}.gitMajor=${major} -X ${version}.gitMinor=${minor}"
}
read_kubernetes cluster
# Without a cluster, Helm renders for the version that it was built with.
rendered="-s -w"
for package in lint/rules chartutil; do
  rendered+=" -X helm.sh/helm/v3/pkg/${package}.k8sVersionMajor=${major} -X helm.sh/helm/v3/pkg/${package}.k8sVersionMinor=${minor}"
done

# The Makefile has this tag for our programs and tests: without it grpc, and all that imports it, would be compiled twice.
shared_tags=grpcnotrace

# name, module directory under tools/, package, module that has the version, linker flags, build tags
cluster=(
  "etcd|cluster|go.etcd.io/etcd/server/v3|go.etcd.io/etcd/server/v3|${stamped}|${shared_tags}"
  "kube-apiserver|cluster|k8s.io/kubernetes/cmd/kube-apiserver|k8s.io/kubernetes|${stamped}|${shared_tags}"
  "kube-scheduler|cluster|k8s.io/kubernetes/cmd/kube-scheduler|k8s.io/kubernetes|${stamped}|${shared_tags}"
  "kube-controller-manager|cluster|k8s.io/kubernetes/cmd/kube-controller-manager|k8s.io/kubernetes|${stamped}|${shared_tags}"
  "kubectl|cluster|k8s.io/kubernetes/cmd/kubectl|k8s.io/kubernetes|${stamped}|${shared_tags}"
  "kubeadm|cluster|k8s.io/kubernetes/cmd/kubeadm|k8s.io/kubernetes|${stamped}|${shared_tags}"
  "baremetal-operator|cluster|github.com/metal3-io/baremetal-operator|github.com/metal3-io/baremetal-operator|${stamped}|${shared_tags}"
  "kwok|cluster|sigs.k8s.io/kwok/cmd/kwok|sigs.k8s.io/kwok|${stamped}|${shared_tags}"
)
cni=github.com/containernetworking/plugins
containerd=github.com/containerd/containerd/v2
containerd_version=$(awk -v m="${containerd}" '{sub(/^require /, "")} $1 == m && $2 ~ /^v/ {print $2; exit}' tools/containerd/go.mod)
containerd_flags="-s -w -X ${containerd}/version.Version=${containerd_version}"
# Snapshotters that need C, or kernel modules that no server has.
containerd_tags=no_btrfs,no_zfs,no_devmapper
node=(
  "kubelet|cluster|k8s.io/kubernetes/cmd/kubelet|k8s.io/kubernetes|${stamped}|${shared_tags}"
  "kube-proxy|cluster|k8s.io/kubernetes/cmd/kube-proxy|k8s.io/kubernetes|${stamped}|${shared_tags}"
  "cni/ptp|cni|${cni}/plugins/main/ptp|${cni}|"
  "cni/loopback|cni|${cni}/plugins/main/loopback|${cni}|"
  "cni/host-local|cni|${cni}/plugins/ipam/host-local|${cni}|"
  "cni/portmap|cni|${cni}/plugins/meta/portmap|${cni}|"
  "containerd|containerd|${containerd}/cmd/containerd|${containerd}|${containerd_flags}|${containerd_tags}"
  "containerd-shim-runc-v2|containerd|${containerd}/cmd/containerd-shim-runc-v2|${containerd}|${containerd_flags}|${containerd_tags}"
  "ctr|containerd|${containerd}/cmd/ctr|${containerd}|${containerd_flags}|${containerd_tags}"
)
dev=(
  "controller-gen|dev|sigs.k8s.io/controller-tools/cmd/controller-gen|sigs.k8s.io/controller-tools|"
  "staticcheck|dev|honnef.co/go/tools/cmd/staticcheck|honnef.co/go/tools|"
  "actionlint|dev|github.com/rhysd/actionlint/cmd/actionlint|github.com/rhysd/actionlint|-s -w"
  "helm-docs|dev|github.com/norwoodj/helm-docs/cmd/helm-docs|github.com/norwoodj/helm-docs|-s -w"
  "helm|helm|helm.sh/helm/v3/cmd/helm|helm.sh/helm/v3|${rendered}"
  "etcdctl|etcd|go.etcd.io/etcd/etcdctl/v3|go.etcd.io/etcd/etcdctl/v3|-s -w"
  "etcdutl|etcd|go.etcd.io/etcd/etcdutl/v3|go.etcd.io/etcd/etcdutl/v3|-s -w"
)
# The suites are test binaries.
upstream=(
  "karpenter-regression|upstream|test:sigs.k8s.io/karpenter/test/suites/regression|sigs.k8s.io/karpenter|"
  "karpenter-disruption|upstream|test:sigs.k8s.io/karpenter/test/suites/disruption|sigs.k8s.io/karpenter|"
  "karpenter-kwok|upstream|sigs.k8s.io/karpenter/kwok|sigs.k8s.io/karpenter|"
)
dra=(
  "vcluster|vcluster|github.com/loft-sh/vcluster/cmd/vcluster|github.com/loft-sh/vcluster|-s -w"
  "dra-example-kubeletplugin|dradriver|sigs.k8s.io/dra-example-driver/cmd/dra-example-kubeletplugin|sigs.k8s.io/dra-example-driver|-s -w"
)
kueue=(
  "kueue|kueue|sigs.k8s.io/kueue/cmd/kueue|sigs.k8s.io/kueue|-s -w"
  "jobset|kueue|sigs.k8s.io/jobset|sigs.k8s.io/jobset|-s -w"
  "lws|kueue|sigs.k8s.io/lws/cmd|sigs.k8s.io/lws|-s -w"
)
otel=(
  "otel-collector|otel|./collector|go.opentelemetry.io/collector/otelcol|-s -w"
)
# The discovery of other clouds' servers would be most of it.
prometheus=(
  "prometheus|prometheus|github.com/prometheus/prometheus/cmd/prometheus|github.com/prometheus/prometheus|-s -w|remove_all_sd"
  "promtool|prometheus|github.com/prometheus/prometheus/cmd/promtool|github.com/prometheus/prometheus|-s -w|remove_all_sd"
)
oidc=(
  "dex|oidc|./dex|github.com/dexidp/dex|-s -w"
  "oauth2-proxy|oidc|github.com/oauth2-proxy/oauth2-proxy/v7|github.com/oauth2-proxy/oauth2-proxy/v7|-s -w"
)
site=(
  "hugo|site|github.com/gohugoio/hugo|github.com/gohugoio/hugo|-s -w"
)
kind=(
  "kind|kind|sigs.k8s.io/kind|sigs.k8s.io/kind|-s -w"
)
kind_node=(
  "coredns|kind|./coredns|github.com/coredns/coredns|-s -w"
  "crictl|kind|sigs.k8s.io/cri-tools/cmd/crictl|sigs.k8s.io/cri-tools|-s -w"
)

programs=()
for group in "$@"; do
  case "${group}" in
    cluster) programs+=("${cluster[@]}") ;;
    node) programs+=("${node[@]}") ;;
    dev) programs+=("${dev[@]}") ;;
    upstream) programs+=("${upstream[@]}") ;;
    dra) programs+=("${dra[@]}") ;;
    kueue) programs+=("${kueue[@]}") ;;
    otel) programs+=("${otel[@]}") ;;
    oidc) programs+=("${oidc[@]}") ;;
    prometheus) programs+=("${prometheus[@]}") ;;
    site) programs+=("${site[@]}") ;;
    kind) programs+=("${kind[@]}") ;;
    kind-node) programs+=("${kind_node[@]}") ;;
    *)
      if [[ "${group}" != versions/* || ! -f "tools/${group}/go.mod" ]]; then
        echo "error: unknown group \"${group}\" of tools; known are: cluster node dev upstream dra kueue otel oidc prometheus site kind kind-node" \
          "$(cd tools && echo versions/*)" >&2
        exit 2
      fi
      read_kubernetes "${group}"
      for name in kube-apiserver kube-scheduler kube-controller-manager kubeadm; do
        programs+=("${group}/${name}|${group}|k8s.io/kubernetes/cmd/${name}|k8s.io/kubernetes|${stamped}|${shared_tags}")
      done
      ;;
  esac
done

total=${#programs[@]}
work=$(mktemp -d "${bin}/.build.XXXXXX")
trap 'rm -rf "${work}"' EXIT
download="${work}/download"
# Programs of one module with the same flags are built by one command, so that no core waits for a linker.
declare -A batches=() names=() stamped_as=()
order=()
for program in "${programs[@]}"; do
  IFS='|' read -r name module package version_module ldflags tags <<<"${program}"
  if [[ -n "${KUBEBUILDER_ASSETS:-}" && "${KUBEBUILDER_ASSETS}" != "${bin}" && -x "${KUBEBUILDER_ASSETS}/${name}" ]]; then
    echo "tools: ${name}: using ${KUBEBUILDER_ASSETS}/${name}"
    continue
  fi
  version=$(awk -v m="${version_module}" '{sub(/^require /, "")} $1 == m && $2 ~ /^v/ {print $2; exit}' "tools/${module}/go.mod")
  # A module that asks for a newer Go is built by another toolchain than the rest.
  sources=("tools/${module}/go.mod" "tools/${module}/go.sum")
  [[ "${package}" == ./* ]] && sources+=("tools/${module}/${package}"/*.go)
  stamp=$(printf '%s\n' "$(go -C "tools/${module}" env GOVERSION)" "${package}" "${ldflags}" ${tags:+"${tags}"} | cat - "${sources[@]}" | sha256sum | cut -d' ' -f1)
  downloaded="downloaded ${version}"
  has=$(cat "${stamps}/${name}" 2>/dev/null || true)
  if [[ -x "${bin}/${name}" && ("${has}" == "${stamp}" || "${has}" == "${downloaded}") ]]; then
    continue
  fi
  mkdir -p "$(dirname "${stamps}/${name}")" "$(dirname "${bin}/${name}")"
  if [[ -n "${KUBERNETES_BINARIES:-}" && "${version_module}" == k8s.io/kubernetes ]]; then
    # Status 3: the mirror does not have it, or does not answer in time. A wrong checksum ends the build.
    status=0
    [[ -x "${download}" ]] || go build -o "${download}" ./hack/download
    "${download}" "${KUBERNETES_BINARIES}" "${version}" "${name##*/}" "${bin}/${name}" || status=$?
    if ((status == 0)); then
      echo "${downloaded}" >"${stamps}/${name}"
      continue
    elif ((status != 3)); then
      exit 1
    fi
  fi
  command=build
  [[ "${package}" == test:* ]] && command="test -c"
  batch="${module}|${command}|${ldflags}|${tags}"
  [[ -n "${batches[${batch}]:-}" ]] || order+=("${batch}")
  batches[${batch}]+="${package#test:} "
  names[${batch}]+="${name} "
  stamped_as[${name}]=${stamp}
done

built=0
for batch in ${order[@]+"${order[@]}"}; do
  IFS='|' read -r module command ldflags tags <<<"${batch}"
  read -r -a packages <<<"${batches[${batch}]}"
  read -r -a batch_names <<<"${names[${batch}]}"
  echo "tools: building ${batch_names[*]} from tools/${module}"
  start=${SECONDS}
  # The go command names each program after its package, and each test after its package with ".test".
  fresh=$(mktemp -d "${work}/XXXXXX")
  if ! BUILD_COMMAND="${command}" GOFLAGS="${GOFLAGS:-} -trimpath" hack/go-build.sh "tools/${module}" "${fresh}/" "${ldflags}" "${tags}" "${packages[@]}"; then
    echo "error: building ${batch_names[*]} from tools/${module} failed" >&2
    exit 1
  fi
  for i in "${!packages[@]}"; do
    file=${packages[i]}
    [[ "${file##*/}" =~ ^v[0-9]+$ ]] && file=${file%/*}
    file=${file##*/}
    [[ "${command}" == build ]] || file+=.test
    mv "${fresh}/${file}" "${bin}/${batch_names[i]}"
    echo "${stamped_as[${batch_names[i]}]}" >"${stamps}/${batch_names[i]}"
  done
  built=$((built + ${#packages[@]}))
  echo "tools: done in $((SECONDS - start))s"
done

# Metal3's CRDs come from the same module as the operator, so that the two cannot differ. Those of Cluster API are for test/neighbours.
if [[ " $* " == *" cluster "* ]]; then
  for definitions in metal3:cluster:github.com/metal3-io/baremetal-operator:config/base/crds/bases \
    clusterapi:clusterapi:sigs.k8s.io/cluster-api:core/config/crd/bases; do
    IFS=: read -r folder module path bases <<<"${definitions}"
    # Without the first, the second prints no folder for a module that was not needed yet.
    source=$(cd "tools/${module}" && go mod download "${path}" && go list -m -f '{{.Dir}}' "${path}")/${bases}
    mkdir -p "${bin}/crds/${folder}"
    for crd in "${source}"/*.yaml; do
      target="${bin}/crds/${folder}/$(basename "${crd}")"
      cmp -s "${crd}" "${target}" || install -m 0644 "${crd}" "${target}"
    done
  done
fi
# The theme has no program, only files.
if [[ " $* " == *" site "* ]]; then
  theme=$(cd tools/site && go mod download github.com/imfing/hextra && go list -m -f '{{.Dir}}' github.com/imfing/hextra)
  if [[ "$(cat "${stamps}/hextra" 2>/dev/null)" != "${theme##*/}" ]]; then
    rm -rf "${bin}/themes"
    mkdir -p "${bin}/themes"
    cp -r --no-preserve=mode "${theme}" "${bin}/themes/hextra"
    echo "${theme##*/}" >"${stamps}/hextra"
  fi
fi
if ((built == 0)); then
  echo "tools: ${total} of ${total} are up to date"
fi
