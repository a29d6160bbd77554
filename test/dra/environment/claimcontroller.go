// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
)

// StartClaimController starts Kubernetes' resourceclaim controller in the tenant, as vCluster up to v0.31 does, and later ones
// without the sync of templates. What it returns stops it.
func (t *Tenant) StartClaimController() (stop func() error, err error) {
	path, err := t.environment.config.Binaries.Find("kube-controller-manager")
	if err != nil {
		return nil, err
	}
	name := t.Name + "-resourceclaim-controller"
	stop = func() error { return t.environment.supervisor.Stop(name) }
	return stop, t.environment.supervisor.Start(process.Spec{Name: name, Path: path, Args: []string{
		"--kubeconfig=" + t.Kubeconfig, "--controllers=resourceclaim-controller",
		"--leader-elect=false", "--secure-port=0", "--profiling=false",
	}})
}
