// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

const (
	// lastingCount is how often in a row Metal3 must report an error that may pass before the manager believes it.
	lastingCount = 3
	// quarantineShare and quarantineLeast bound the automatic quarantine of a type's servers, by share and by number. A
	// wrong image or a broken switch fails on one server after the other, and is no reason to lose them all.
	quarantineShare = 0.2
	quarantineLeast = 2
	// suspectShare and suspectLeast are the bounds for servers that Metal3 finds nothing wrong with. The image of the
	// tenant that complains may not boot, and it must not take the servers of others out of the pool.
	suspectShare = 0.05
	suspectLeast = 1
)

// isLasting reports whether trying again will not mend an error of a host. A failed operation is lasting once Metal3
// reports it, because Metal3 would start all over. An unreachable BMC may pass: Metal3 asks again after about 2 and
// then 4 minutes, and the third failure in a row is lasting.
func isLasting(host *bmov1alpha1.BareMetalHost) bool {
	switch host.Status.ErrorType {
	case bmov1alpha1.ProvisioningError, bmov1alpha1.PreparationError, bmov1alpha1.InspectionError:
		return true
	}
	return host.Status.ErrorCount >= lastingCount
}

// replace gives up a Machine whose server is in error, unless too many servers of its type are quarantined already.
func (r *Reconciler) replace(ctx context.Context, v *visit, outcome result, policy provisioningPolicy) (result, error) {
	full := r.quarantines.quarantineIsFull(v.host, false)
	if full == "" && mayBeToBlame(outcome.observed) {
		var err error
		if full, err = r.quarantines.quarantine(ctx, v, outcome.observed, v1alpha1.ReasonHostError); err != nil {
			return result{}, err
		}
	}
	if full != "" {
		outcome.observed.message += ". It is not replaced, although its NodeType says so: " + full
		return outcome, nil
	}
	return r.giveUpOn(ctx, v, outcome.observed, v1alpha1.ReasonHostError, policy)
}

// mayBeToBlame reports whether the installation came so far that the server can be the cause.
func mayBeToBlame(f *observation) bool { return f.progress.Step >= stageWaiting.step }

// quarantines keeps faulty servers out of the pool, within limits.
type quarantines struct {
	hosts     hosts.Writer
	inventory *inventory.Inventory
	recorder  events.EventRecorder
	clock     clock.PassiveClock
	// adding is held while quarantined servers are counted and one is added.
	adding sync.Mutex
}

// why returns the reason to quarantine a server. If a Machine makes no progress, or its node is unhealthy, only its
// tenant claims so, unless Metal3 reports an error, too. Then the server is a suspect.
func (q *quarantines) why(machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost, reason string) inventory.Quarantine {
	return inventory.Quarantine{
		Reason: reason, Since: q.clock.Now(), Machine: client.ObjectKeyFromObject(machine),
		Suspect: reason != v1alpha1.ReasonHostError && hosts.ErrorOf(host) == "",
	}
}

// quarantine keeps the server of a Machine out of the pool, or returns why too many servers are quarantined.
func (q *quarantines) quarantine(ctx context.Context, v *visit, f *observation, reason string) (full string, err error) {
	host, full, err := q.quarantineWithinLimit(ctx, v.host, q.why(v.machine, v.host, reason))
	if err != nil || full != "" {
		return full, err
	}
	q.recorder.Eventf(host, v.machine, corev1.EventTypeWarning, string(EventQuarantined), string(EventQuarantined), "%s",
		conditions.Truncate(reason+": "+f.message, conditions.MaxEventNote))
	v.host = host
	return "", nil
}

// quarantineWithinLimit quarantines one server at a time: a fault of a whole type shows on all servers at once, and the
// watch reports the quarantined ones only later.
func (q *quarantines) quarantineWithinLimit(ctx context.Context, host *bmov1alpha1.BareMetalHost,
	why inventory.Quarantine) (quarantined *bmov1alpha1.BareMetalHost, full string, err error) {
	q.adding.Lock()
	defer q.adding.Unlock()
	if full := q.quarantineIsFull(host, why.Suspect); full != "" {
		if host, err = q.hosts.AnnotateOnce(ctx, host, "noting the fault of", v1alpha1.FaultAnnotationKey, why.String()); err == nil {
			q.inventory.SetHost(host)
		}
		return host, full, err
	}
	if host, err = q.hosts.Quarantine(ctx, host, why); err != nil {
		return nil, "", err
	}
	q.inventory.SetHost(host)
	return host, "", nil
}

// quarantineIsFull returns why no more servers of a host's type may be quarantined, or "" if they may. The host names
// its type even if its Machine has lost its status. Suspects have a limit of their own, so that no tenant uses up the
// limit for faults that Metal3 finds.
func (q *quarantines) quarantineIsFull(host *bmov1alpha1.BareMetalHost, suspect bool) string {
	nodeType := host.Annotations[v1alpha1.NodeTypeAnnotationKey]
	summary, known := q.inventory.Summary(nodeType)
	if !known {
		return ""
	}
	total, quarantined := summary.Capacity.Total, summary.AllQuarantined-summary.Suspects
	limit, onWhose := max(quarantineLeast, int32(quarantineShare*float64(total))), ""
	if suspect {
		quarantined = summary.Suspects
		limit, onWhose = max(suspectLeast, int32(suspectShare*float64(total))), " on the word of tenants"
	}
	if quarantined < limit {
		return ""
	}
	return fmt.Sprintf("%d of %d servers of NodeType %s are quarantined%s, and more than %d are not by themselves: "+
		"look for what is wrong with all of them (image, user data, network), and remove the annotation %s from those that are well",
		quarantined, total, nodeType, onWhose, limit, v1alpha1.QuarantinedAnnotationKey)
}

// decidedBefore returns the reason of a previous run that gave the Machine up but was killed between the two writes.
// The first write is the quarantine, and a person may have read it.
func decidedBefore(machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) string {
	if host == nil {
		return ""
	}
	if quarantine, ours := inventory.QuarantineOf(host); ours && quarantine.Machine == client.ObjectKeyFromObject(machine) {
		return quarantine.Reason
	}
	return ""
}

// giveUpOn gives a Machine up, in two writes. First it quarantines the server, if the server may be to blame. Then it
// writes the status, and the provider deletes the Machine so that others look for a server.
func (r *Reconciler) giveUpOn(ctx context.Context, v *visit, f *observation, reason string, policy provisioningPolicy) (result, error) {
	remedy := ""
	_, quarantined := v.host.Annotations[v1alpha1.QuarantinedAnnotationKey]
	if !quarantined && mayBeToBlame(f) {
		var err error
		if remedy, err = r.quarantines.quarantine(ctx, v, f, reason); err != nil {
			return result{}, err
		}
		quarantined = remedy == ""
	}
	if quarantined {
		remedy = fmt.Sprintf("the server is quarantined: find out what is wrong with it, and remove the annotation %s from its BareMetalHost",
			v1alpha1.QuarantinedAnnotationKey)
	}
	return result{observed: &observation{
		phase: v1alpha1.MachineFailed, reason: reason, givenUp: reason, host: v.host, progress: f.progress,
		message: givenUpMessage(f, reason, policy, remedy),
	}}, nil
}

// givenUpMessage tells where the Machine was, for how long, its last message, and what to do.
func givenUpMessage(f *observation, reason string, policy provisioningPolicy, remedy string) string {
	where := fmt.Sprintf("%s, step %d of %d", f.progress.Description, f.progress.Step, f.progress.Steps)
	message := fmt.Sprintf("given up at %s, because its server is in error: %s", where, f.message)
	if reason == v1alpha1.ReasonDeadlineExceeded {
		message = fmt.Sprintf("given up after %s without progress at %s: %s", inMinutes(policy.deadline), where, f.message)
	}
	if remedy != "" {
		message += "; " + remedy
	}
	return message
}

// watchGaveUp keeps a Machine that was given up until it is deleted.
func (r *Reconciler) watchGaveUp(_ context.Context, v *visit) (result, error) {
	givenUp := condition(v.machine, v1alpha1.ConditionGivenUp)
	return result{observed: &observation{
		phase: v1alpha1.MachineFailed, reason: givenUp.Reason, givenUp: givenUp.Reason, host: v.host, message: givenUp.Message,
	}}, nil
}

// provenAfter is how long a node must run on a server with a fault before the server counts as any other.
const provenAfter = time.Hour

// rebooting is the condition that a Machine records for its node after a failed reboot. It is core's, of the NodeClaim.
const rebooting = "Rebooting"

// EventUnhealthy: the server is quarantined, because the node on it was unhealthy.
const EventUnhealthy EventReason = "QuarantinedUnhealthy"

// quarantineUnhealthy quarantines a server whose node was unhealthy when Karpenter deleted it. It is the first write of
// the release, so that a crash cannot skip it. The limit on quarantined servers applies.
func (r *Reconciler) quarantineUnhealthy(ctx context.Context, machine *v1alpha1.Machine,
	host *bmov1alpha1.BareMetalHost) (*bmov1alpha1.BareMetalHost, error) {
	why := machine.ReportedNode().Unhealthy
	if _, quarantined := host.Annotations[v1alpha1.QuarantinedAnnotationKey]; why == nil || quarantined {
		return host, nil
	}
	quarantine := r.quarantines.why(machine, host, v1alpha1.ReasonNodeUnhealthy)
	quarantine.Message = why.String()
	if why.Condition == rebooting && hosts.AwaitsReboot(host) {
		if !hosts.IsEmptied(host) && !inventory.IsReleasing(host) { // only once
			r.event(machine, corev1.EventTypeWarning, string(EventUnhealthy), fmt.Sprintf(
				"server %s/%s is not quarantined, although its reboot has failed: Metal3 has not rebooted it", host.Namespace, host.Name))
		}
		return host, nil
	}
	host, full, err := r.quarantines.quarantineWithinLimit(ctx, host, quarantine)
	if err != nil {
		return nil, err
	}
	if full != "" {
		if !hosts.IsEmptied(host) && !inventory.IsReleasing(host) { // only once
			r.event(machine, corev1.EventTypeWarning, string(EventUnhealthy),
				fmt.Sprintf("the node on server %s/%s was unhealthy (%s), and the server is not quarantined: %s",
					host.Namespace, host.Name, why, full))
		}
		return host, nil
	}
	r.event(machine, corev1.EventTypeWarning, string(EventUnhealthy), fmt.Sprintf(
		"server %s/%s is quarantined, because the node on it was unhealthy: %s. To use it again, remove the annotation %s from its BareMetalHost",
		host.Namespace, host.Name, why, v1alpha1.QuarantinedAnnotationKey))
	return host, nil
}
