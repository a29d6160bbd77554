// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// Labels and annotations by which others say the size of a group. Their controllers put them on pods.
const (
	// Kueue's groups of plain pods. The admission of Kueue is all or nothing, too.
	kueueGroup = "kueue.x-k8s.io/pod-group-name"
	kueueCount = "kueue.x-k8s.io/pod-group-total-count"

	// A group of a LeaderWorkerSet is a leader with its workers.
	lwsSize     = "leaderworkerset.sigs.k8s.io/size"
	lwsGroup    = "leaderworkerset.sigs.k8s.io/group-index"
	lwsGroupKey = "leaderworkerset.sigs.k8s.io/group-key"

	// A JobSet has ReplicatedJobs, each of several Jobs. The two last are how many Jobs there are.
	JobSetLabelKey    = "jobset.sigs.k8s.io/jobset-name"
	replicatedJob     = "jobset.sigs.k8s.io/replicatedjob-name"
	jobSetJobs        = "jobset.sigs.k8s.io/global-replicas"
	replicatedJobJobs = "jobset.sigs.k8s.io/replicatedjob-replicas"
)

// leaderFirst are annotations of pods whose controller makes the other pods of the group once the first one has a node.
var leaderFirst = []string{"alpha.jobset.sigs.k8s.io/exclusive-topology", "leaderworkerset.sigs.k8s.io/exclusive-topology"}

// size is what the pods of a gang say about it, and the controllers that made them.
type size struct {
	// minCount is how many pods must run at one time. It is 0 if nothing says so.
	minCount int
	// firm is false if the controller may make some of the pods only when others run, as a LeaderWorkerSet and a JobSet can.
	firm bool
	// idle is how long the gang waits for more pods without a firm minCount, nil for the default.
	idle *time.Duration
}

// sizeOf finds the size of a gang: what its pods say, else their PodGroup, Kueue, a LeaderWorkerSet, and Jobs. problem says of an
// annotation that cannot be read what is wrong with it.
func (p *Placer) sizeOf(ctx context.Context, g *gang) (result size, problem string, err error) {
	if g.unread != nil {
		return size{}, "", g.unread
	}
	for _, pod := range g.pods {
		own, problem := ownSize(pod, g)
		if problem != "" {
			return size{}, problem, nil
		}
		if own.minCount > result.minCount {
			result.minCount, result.firm = own.minCount, own.firm
		}
		if own.idle != nil && (result.idle == nil || *own.idle > *result.idle) {
			result.idle = own.idle
		}
	}
	if result.minCount == 0 && g.group.problem != "" {
		return size{}, g.group.problem, nil
	}
	if result.minCount == 0 && len(g.running) == 0 {
		result.minCount, result.firm, err = p.ofJobs(ctx, g)
	}
	return result, "", err
}

// ownSize is what one pod says.
func ownSize(pod *corev1.Pod, g *gang) (result size, problem string) {
	invalid := func(key, want string) (size, string) {
		return size{}, fmt.Sprintf("annotation %s of pod %s is %q: it must be %s", key, pod.Name, pod.Annotations[key], want)
	}
	if text, found := pod.Annotations[v1alpha1.GangIdleDurationAnnotationKey]; found {
		idle, err := time.ParseDuration(text)
		if err != nil || idle < 0 {
			return invalid(v1alpha1.GangIdleDurationAnnotationKey, "a duration, such as 30s")
		}
		result.idle = &idle
	}
	for _, source := range []struct {
		key        string
		says, firm bool
	}{
		{v1alpha1.GangMinCountAnnotationKey, true, true},
		{kueueCount, PodGroupOf(pod) == "" && pod.Labels[kueueGroup] != "", true},
		{lwsSize, PodGroupOf(pod) == "" && g.selectsBy(lwsGroup, lwsGroupKey) && !startsLeaderFirst(pod), false},
	} {
		text, found := pod.Annotations[source.key]
		if !found || !source.says {
			continue
		}
		count, err := strconv.ParseInt(text, 10, 32)
		if err != nil || count < 1 {
			return invalid(source.key, "a whole number from 1, such as 64")
		}
		result.minCount, result.firm = int(count), source.firm
		return result, ""
	}
	result.minCount, result.firm = g.group.minCount, true
	return result, ""
}

// selectsBy returns whether the affinity of the gang's pods is to those with one value of one of the labels.
func (g *gang) selectsBy(keys ...string) bool {
	return slices.ContainsFunc(g.selectors, func(selector labels.Selector) bool {
		return slices.ContainsFunc(keys, func(key string) bool {
			_, exact := selector.RequiresExactMatch(key)
			return exact
		})
	})
}

func startsLeaderFirst(pod *corev1.Pod) bool {
	return slices.ContainsFunc(leaderFirst, func(key string) bool { return pod.Annotations[key] != "" })
}

// ofJobs is how many pods of Indexed Jobs that run all at once are not done yet. It is 0 if one of the gang's pods is another's. Jobs of a
// JobSet that have no pods yet count as one pod each.
func (p *Placer) ofJobs(ctx context.Context, g *gang) (count int, firm bool, err error) {
	jobs, expected := sets.New[string](), 0
	for _, pod := range slices.Concat(g.pods, g.running) {
		owner := metav1.GetControllerOf(pod)
		if owner == nil || owner.Kind != "Job" || startsLeaderFirst(pod) {
			return 0, false, nil
		}
		if jobs.Has(owner.Name) {
			continue
		}
		job := &batchv1.Job{}
		found, err := kube.Find(ctx, p.Live, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, job)
		if err != nil {
			return 0, false, fmt.Errorf("reading the Job of a gang, %w", err)
		}
		if !found || job.UID != owner.UID || !allAtOnce(job) {
			return 0, false, nil
		}
		jobs.Insert(owner.Name)
		count += int(*job.Spec.Parallelism - job.Status.Succeeded)
		switch {
		case g.selectsBy(replicatedJob):
			expected, _ = strconv.Atoi(pod.Labels[replicatedJobJobs])
		case g.selectsBy(JobSetLabelKey):
			expected, _ = strconv.Atoi(pod.Labels[jobSetJobs])
		}
	}
	missing := max(0, expected-jobs.Len())
	return count + missing, missing == 0, nil
}

// allAtOnce returns whether the pods of a Job need each other: each has an index, and all run at one time. Kubernetes makes PodGroups for
// the same Jobs (KEP-5547).
func allAtOnce(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion &&
		job.Spec.Parallelism != nil && ptr.Equal(job.Spec.Parallelism, job.Spec.Completions)
}
