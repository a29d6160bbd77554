// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// Labels and annotations with the size of a group. Other controllers put them on pods.
const (
	// Kueue's groups of plain pods. Kueue also admits all or nothing.
	kueueGroup = "kueue.x-k8s.io/pod-group-name"
	kueueCount = "kueue.x-k8s.io/pod-group-total-count"

	// A group of a LeaderWorkerSet is a leader with its workers.
	lwsSize     = "leaderworkerset.sigs.k8s.io/size"
	lwsGroup    = "leaderworkerset.sigs.k8s.io/group-index"
	lwsGroupKey = "leaderworkerset.sigs.k8s.io/group-key"

	// A JobSet has ReplicatedJobs, each with several Jobs. The last two are numbers of Jobs.
	JobSetLabelKey    = "jobset.sigs.k8s.io/jobset-name"
	replicatedJob     = "jobset.sigs.k8s.io/replicatedjob-name"
	jobSetJobs        = "jobset.sigs.k8s.io/global-replicas"
	replicatedJobJobs = "jobset.sigs.k8s.io/replicatedjob-replicas"
)

// leaderFirst are annotations of pods whose controller makes the rest of the group once the first pod has a node.
var leaderFirst = []string{"alpha.jobset.sigs.k8s.io/exclusive-topology", "leaderworkerset.sigs.k8s.io/exclusive-topology"}

// size is the size of a gang according to its pods and the controllers that made them.
type size struct {
	// minCount is how many pods must run at one time, 0 if nothing states it.
	minCount int
	// firm is false if the controller may make some pods only when others run, as LeaderWorkerSets and JobSets can.
	firm bool
	// whole is how many pods the controller makes once the first one has a node. The domain needs room for them.
	whole int
	// idle is how long the gang waits for more pods if it has no firm minCount, nil for the default.
	idle *time.Duration
}

// sizeOf finds the size of a gang: from its pods, else from their PodGroup, Kueue, a LeaderWorkerSet, and Jobs. problem
// describes an annotation that cannot be read.
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
		result.whole = max(result.whole, own.whole)
		if own.idle != nil && (result.idle == nil || *own.idle > *result.idle) {
			result.idle = own.idle
		}
	}
	if result.minCount == 0 && g.group.problem != "" {
		return size{}, g.group.problem, nil
	}
	if len(g.running) > 0 || result.minCount > 0 && g.members() >= result.minCount {
		return result, "", nil
	}
	jobs, err := p.ofJobs(ctx, g)
	switch {
	case apierrors.IsForbidden(err) && result.minCount > 0:
		err = nil
	case slices.ContainsFunc(g.pods, startsLeaderFirst):
		result.whole = max(result.whole, jobs.pods)
	case result.minCount == 0 && jobs.together:
		result.minCount, result.firm = jobs.pods+jobs.missing, jobs.missing == 0
	case result.minCount > 0 && jobs.known && jobs.missing == 0: // the others are done, or have failed for good
		result.minCount = min(result.minCount, jobs.pods)
	}
	return result, "", err
}

// ownSize reads the annotations of one pod.
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
		{lwsSize, PodGroupOf(pod) == "" && g.selectsBy(lwsGroup, lwsGroupKey), false},
	} {
		text, found := pod.Annotations[source.key]
		if !found || !source.says {
			continue
		}
		count, err := strconv.ParseInt(text, 10, 32)
		if err != nil || count < 1 {
			return invalid(source.key, "a whole number from 1, such as 64")
		}
		if source.key == lwsSize && startsLeaderFirst(pod) {
			result.whole = int(count)
			break
		}
		result.minCount, result.firm = int(count), source.firm
		return result, ""
	}
	result.minCount, result.firm = g.group.minCount, true
	return result, ""
}

// selectsBy reports whether the affinity of the gang's pods selects one value of one of the labels.
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

// jobs sums up the Jobs of a gang.
type jobs struct {
	// pods counts the pods that are still to be done. missing counts the Jobs of a JobSet that have no pods yet.
	pods, missing int
	// known is true if each pod is a Job's that states its number of pods. together is true if all run at one time.
	known, together bool
}

// ofJobs reads the Jobs of a gang. It does not count finished pods and failed indexes, which do not come again.
func (p *Placer) ofJobs(ctx context.Context, g *gang) (result jobs, err error) {
	names, expected := sets.New[string](), 0
	result.together = true
	for _, pod := range g.pods {
		owner := metav1.GetControllerOf(pod)
		if owner == nil || owner.Kind != "Job" {
			return jobs{}, nil
		}
		if names.Has(owner.Name) {
			continue
		}
		job := &batchv1.Job{}
		found, err := kube.Find(ctx, p.Live, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, job)
		if err != nil {
			return jobs{}, fmt.Errorf("reading the Job of a gang, %w", err)
		}
		if !found || job.UID != owner.UID || job.Spec.Completions == nil {
			return jobs{}, nil
		}
		names.Insert(owner.Name)
		result.together = result.together && allAtOnce(job)
		result.pods += max(0, int(*job.Spec.Completions-job.Status.Succeeded)-indexes(ptr.Deref(job.Status.FailedIndexes, "")))
		switch {
		case g.selectsBy(replicatedJob):
			expected, _ = strconv.Atoi(pod.Labels[replicatedJobJobs])
		case g.selectsBy(JobSetLabelKey):
			expected, _ = strconv.Atoi(pod.Labels[jobSetJobs])
		}
	}
	result.known, result.missing = true, max(0, expected-names.Len())
	return result, nil
}

// indexes counts the indexes in a text such as 1,3-5.
func indexes(text string) (count int) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		if !isRange {
			last = first
		}
		to, errLast := strconv.Atoi(last)
		if err == nil && errLast == nil && to >= from {
			count += to - from + 1
		}
	}
	return count
}

// allAtOnce reports whether the pods of a Job need each other: each has an index, and all run at one time. Kubernetes
// makes PodGroups for the same Jobs (KEP-5547).
func allAtOnce(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion &&
		job.Spec.Parallelism != nil && ptr.Equal(job.Spec.Parallelism, job.Spec.Completions)
}
