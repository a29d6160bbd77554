// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	stdcmp "cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
)

func TestWorkload(t *testing.T) {
	const template = `{metadata: {labels: {app: web}}, spec: {containers: [{name: main, env: [{name: TOKEN, value: secret}], ` +
		`resources: {limits: {cpu: "2"}, requests: {memory: 1Gi}}}]}}`
	document := "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: %s}\nspec: {replicas: 2, selector: {}, " +
		"template: {spec: {containers: [{name: main}]}}}\n"
	two := fmt.Sprintf(document+"---\n"+document, "first", "second")
	for name, tc := range map[string]struct {
		reason   string
		text     string
		replicas *int
		most     Bounds
		want     []string // namespace/name and requested CPU
		err      string
	}{
		"Pod": {reason: "a pod as it is, which requests what it is limited to",
			text: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: team}\nspec:\n" +
				"  containers: [{name: main, resources: {limits: {cpu: 500m}}}]",
			want: []string{"team/web 500m"}},
		"Several": {reason: "one document each, and comments between them",
			text: "# a Deployment\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n" +
				"spec: {replicas: 2, selector: {}, template: " + template + "}\n---\n# nothing\n---\napiVersion: batch/v1\nkind: Job\n" +
				"metadata: {name: train}\nspec: {parallelism: 4, completions: 3, template: " + template + "}",
			want: []string{"default/web-0 2", "default/web-1 2", "default/train-0 2", "default/train-1 2", "default/train-2 2"}},
		"Replicas": {reason: "--replicas takes the place of what the documents say",
			text: "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\n" +
				"spec: {serviceName: db, selector: {}, template: " + template + "}",
			replicas: ptr.To(2), want: []string{"default/db-0 2", "default/db-1 2"}},
		"Kind": {reason: "a kind that is no workload is named",
			text: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}",
			err:  "document 1: a ConfigMap is not a workload that is planned here: it must be " + kinds},
		"Unknown": {reason: "so is one that is not known, with the number of the document",
			text: "---\n# one\n---\napiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: web}",
			err:  "is a JobSet of jobset.x-k8s.io/v1alpha2, which is not known here: it must be " + kinds},
		"NoKind": {reason: "there is no kind", text: "metadata: {name: web}", err: "document 1 has no apiVersion and kind: it must be " + kinds},
		"Field": {reason: "a field that does not exist is named",
			text: "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {container: []}",
			err:  `document 1, a Pod, is not right: unknown field "spec.container"`},
		"Quantity": {reason: "a value that is wrong is named",
			text: "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, resources: {limits: {cpu: many}}}]}",
			err:  "document 1, a Pod, is not right: "},
		"NoContainers": {reason: "a template without containers asks for nothing",
			text: "apiVersion: v1\nkind: Pod\nmetadata: {name: web}", err: "document 1: Pod web has no containers"},
		"NoName": {reason: "a name is missing", text: "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: main}]}",
			err: "document 1: the Pod has no metadata.name"},
		"Empty":      {reason: "there is nothing", text: "# nothing\n", err: "it asks for no pod: it must have documents that are " + kinds},
		"NoYAML":     {reason: "it is no YAML", text: "a: [", err: "document 1 is not right: "},
		"NoReplicas": {reason: "none asks for nothing", text: "", replicas: ptr.To(-1), err: "--replicas is -1: it must be 1 to 100000"},
		"TooManyPods": {reason: "a typo", text: "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web}\n" +
			"spec: {replicas: 2000000, selector: {}, template: " + template + "}",
			err: "document 1: ReplicaSet web asks for 2000000 pods: it must be 0 to 100000"},
		"TooManyTogether": {reason: "each document has few", most: Bounds{Pods: 3, Values: 1000}, text: two,
			err: "document 2: these are more than 3 pods together"},
		"TooLarge": {reason: "each pod has many containers", most: Bounds{Pods: 1000, Values: 3000},
			text: "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web}\n" +
				"spec: {replicas: 2, selector: {}, template: {spec: {containers: [" + strings.Repeat("{name: a}, ", 1000) + "]}}}",
			err: "document 1: 2 pods of 2011 values each are more than 3000 values together: ask for fewer or smaller pods"},
		"TooLargeTogether": {reason: "each document fits", most: Bounds{Pods: 1000, Values: 50}, text: two,
			err: "document 2: 2 pods of 13 values each are more than 50"},
		"TooLargeByItself": {reason: "it is not read further", most: Bounds{Pods: 1000, Values: 3000},
			text: "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: &c [" + strings.Repeat("{name: a}, ", 1000) +
				"], initContainers: *c, ephemeralContainers: *c}",
			err: "document 1 is not right: it has 6009 values, and may have 3000"},
	} {
		t.Run(name, func(t *testing.T) {
			pods, err := Workload(strings.NewReader(tc.text), "default", tc.replicas, stdcmp.Or(tc.most, FileBounds))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: got %v, want one sentence with %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, pod := range pods {
				got = append(got, fmt.Sprintf("%s/%s %s", pod.Namespace, pod.Name, pod.Spec.Containers[0].Resources.Requests.Cpu()))
				if len(pod.Spec.Containers[0].Env) > 0 {
					t.Errorf("pod %s has its environment", pod.Name)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
