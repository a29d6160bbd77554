// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/kind/docker"
)

// confined is what the kernel says of a process with the charts' security context: an unprivileged user, no capabilities, no
// privilege escalation, a seccomp filter, and a root file system that is read-only.
var confined = map[string]string{
	"Uid": "65532 65532 65532 65532", "Gid": "65532 65532 65532 65532",
	"CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapBnd": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
	"/": "ro",
}

// inspect prints what is asked of the process of a container. It runs on the node.
const inspect = `pid=$(crictl inspect --output go-template --template '{{.info.pid}}' "$1")
cat "/proc/$pid/status"
while read -r _ target _ options _; do
  if [ "$target" = / ]; then echo "/: ${options%%,*}"; fi
done <"/proc/$pid/mounts"`

// checkConfined compares the process of each container in a namespace of the management cluster with confined.
func (w *fixture) checkConfined(t *testing.T, namespace string) {
	t.Helper()
	for _, pod := range w.podsOf(t, namespace) {
		for _, container := range pod.Status.ContainerStatuses {
			_, id, _ := strings.Cut(container.ContainerID, "://")
			// kind names nodes like the containers that they are.
			output, err := docker.Run(t.Context(), "exec", pod.Spec.NodeName, "sh", "-euc", inspect, "sh", id)
			if err != nil {
				t.Errorf("looking at the process of pod %s, %v", pod.Name, err)
				continue
			}
			got := map[string]string{}
			for line := range strings.Lines(output) {
				key, value, _ := strings.Cut(line, ":")
				if _, asked := confined[key]; asked {
					got[key] = strings.Join(strings.Fields(value), " ")
				}
			}
			if diff := cmp.Diff(confined, got); diff != "" {
				t.Errorf("the process of pod %s is not confined as the chart says (-want +got):\n%s", pod.Name, diff)
			}
		}
	}
}
