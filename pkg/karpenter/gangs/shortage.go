// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// namedDomains is how many domains a message names.
const namedDomains = 5

// Shortage says that no domain has room for all pods of the gang of a pod, and for how many each has:
// "no nvlink-domain has room for all 5 pods that must be together: n2 has room for 4, n1 for 2". If pods of the gang run,
// it is about their domain. It is empty if there is room, or if the pod belongs to no gang. It is as of the last time that
// core listed the pending pods.
func (p *Placer) Shortage(pod *corev1.Pod) string {
	gang := of(pod)
	if gang == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.short[gang.id]
}

func (p *Placer) setShort(short map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.short = short
}

// shortageOf returns the message. The domains are those that place returned.
func shortageOf(g *gang, domains []*domain) string {
	if len(domains) > 0 && domains[0].pods >= int64(len(g.pods)) {
		return ""
	}
	if g.fixed != nil {
		room := int64(0)
		if len(domains) > 0 {
			room = domains[0].pods
		}
		var values []string
		for _, key := range g.keys {
			values = append(values, key+" "+g.fixed[key])
		}
		return fmt.Sprintf("%s, where the others run that these %d pods must be together with, has room for %d", strings.Join(values, " and "),
			len(g.pods), room)
	}
	sentence := fmt.Sprintf("no %s has room for all %d pods that must be together", strings.Join(g.keys, " and "), len(g.pods))
	var parts []string
	for i, one := range domains {
		if i == namedDomains {
			parts = append(parts, fmt.Sprintf("and %d more have less", len(domains)-i))
			break
		}
		place := strings.Join(one.values, "/")
		if i == 0 {
			parts = append(parts, fmt.Sprintf("%s has room for %d", place, one.pods))
		} else {
			parts = append(parts, fmt.Sprintf("%s for %d", place, one.pods))
		}
	}
	if len(parts) == 0 {
		return sentence + ": there is room for none"
	}
	return sentence + ": " + strings.Join(parts, ", ")
}
