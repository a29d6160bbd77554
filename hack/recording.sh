#!/usr/bin/env bash
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs the main job on a sandbox, and makes an animated picture of the commands and of what they print: docs/pictures/story.svg. Each line
# comes when it was printed. Of a longer wait only 2 seconds are left, and the picture says how long it was. "make tools build" comes first.
#
# usage: recording.sh [FILE]
set -euo pipefail
cd "$(dirname "$0")/.."
picture=$(realpath "${1:-docs/pictures/story.svg}")
export PATH=${PWD}/bin:${PATH} LC_ALL=C.UTF-8
directory=$(mktemp -d)
management=examples/reference-fleet/management.yaml tenant=examples/reference-fleet/tenant.yaml
cat >"${directory}/fleet.yaml" <<'FLEET'
apiVersion: sandbox.karpenter.metal3.io/v1alpha1
kind: Fleet
servers:
  - name: server-01
    labels: {gpu-model: h100, gpu-count: "8", rack: rack-a, datacenter: us-east-1}
    capacity: {cpu: "96", memory: 768Gi, nvidia.com/gpu: "8"}
  - name: server-02
    labels: {server-class: cpu, rack: rack-a, datacenter: us-east-1}
    capacity: {cpu: "32", memory: 128Gi}
FLEET
cat >"${directory}/train.yaml" <<'POD'
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers:
    - name: main
      image: registry.example.com/train:1
      resources: {limits: {cpu: "16", memory: 64Gi, nvidia.com/gpu: "8"}}
POD

touch "${directory}/sandbox.log" # tail may be there before the sandbox
bin/sandbox up --dir "${directory}/sandbox" --tenant acme --fleet "${directory}/fleet.yaml" >>"${directory}/sandbox.log" 2>&1 &
sandbox=$!
trap 'kill ${sandbox} 2>/dev/null && wait ${sandbox} || true; rm -rf "${directory}"' EXIT
grep --quiet "The sandbox is up" < <(tail -f --pid="${sandbox}" -n +1 "${directory}/sandbox.log") || {
  cat "${directory}/sandbox.log" >&2
  exit 1
}
export KUBECONFIG=${directory}/sandbox/management.kubeconfig
cp "${directory}/sandbox/tenant.kubeconfig" "${directory}/acme.kubeconfig"
{
  kubectl apply -f "${management}"
  kubectl --kubeconfig "${directory}/acme.kubeconfig" apply -f "${tenant}"
  kubectl metal3 maintenance server-01 --reason "DIMM 3 is replaced"
  kubectl wait --for=condition=Ready nodetypes --all --timeout=1m
  kubectl --kubeconfig "${directory}/acme.kubeconfig" wait --for=condition=Ready nodepools --all --timeout=1m
} >"${directory}/setup.log" 2>&1 || { cat "${directory}/setup.log" >&2; exit 1; }
cd "${directory}"

note() { printf '%s\t%s\n' "${EPOCHREALTIME}" "$1" >>lines; }
# run COMMAND [LAST]: runs it, until it prints a line that matches LAST.
run() {
  note "\$ $1"
  exec 3< <(exec bash -c "exec $1" 2>&1)
  local command=$!
  while IFS= read -r line <&3; do
    note "${line}"
    if [[ -n "${2:-}" && "${line}" =~ ${2} ]]; then
      kill "${command}"
      break
    fi
  done
  exec 3<&-
}
run "kubectl --kubeconfig acme.kubeconfig apply -f train.yaml   # the tenant: a pod that asks for 8 GPUs"
run "kubectl metal3 explain pod train --tenant-kubeconfig acme.kubeconfig"
run "kubectl metal3 return server-01"
run "kubectl metal3 machines -w" Joined
run "kubectl --kubeconfig acme.kubeconfig get pod train -w" Running
run "kubectl metal3 timeline host server-01"
run "kubectl --kubeconfig acme.kubeconfig delete pod train"
run "kubectl metal3 hosts -w --type h100-8x" available

awk -F '\t' '
  function text(line) { gsub(/&/, "\\&amp;", line); gsub(/</, "\\&lt;", line); gsub(/>/, "\\&gt;", line); gsub(/ /, "\\&#160;", line); return line }
  function add(line, class) {
    count++
    at[count] = int(10 * time) / 10
    shown[count] = sprintf("<text x=\"16\" y=\"%d\" class=\"%s\">%s</text>", 14 + 17 * count, class, text(line))
  }
  NR > 1 && $1 - before > 2 {
    time += 1
    add(sprintf("… %d s later", $1 - before), "wait")
    time += 1
  }
  NR > 1 && $1 - before <= 2 { time += $1 - before }
  $2 ~ /^\$ / { if (NR > 1) time += 2 } # to read what is there
  { add($2, $2 ~ /^\$ / ? "command" : "output"); before = $1; if ($2 ~ /^\$ /) time += 1 }
  END {
    end = time + 6
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 %d\" font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,monospace\" " \
      "font-size=\"12\">\n<title>What the commands print while a pod gets a server, and gives it back</title>\n<style>\n", 28 + 17 * count
    print ".output{fill:#e6edf3}.command{fill:#7ee787}.wait{fill:#d2a8ff}"
    printf "g{animation-duration:%.1fs;animation-timing-function:step-end;animation-iteration-count:infinite}\n", end
    for (i = 1; i <= count; i++)
      if (i == 1 || at[i] != at[i - 1]) printf "@keyframes k%d{0%%{opacity:0}%.2f%%{opacity:1}}\n", i, 100 * (at[i] + 0.3) / end
    print "@media (prefers-reduced-motion:reduce){g{animation:none}}\n</style>"
    print "<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>"
    for (i = 1; i <= count; i++) {
      if (i == 1 || at[i] != at[i - 1]) printf "%s<g style=\"animation-name:k%d\">\n", (i == 1 ? "" : "</g>\n"), i
      print shown[i]
    }
    print "</g>\n</svg>"
  }' lines >"${picture}"
