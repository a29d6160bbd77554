// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kind makes an environment out of two kind clusters: a management cluster with our charts, a tenant cluster, and beside them, in
// containers on the same network, Metal3 and a rack of emulated servers that join the tenant with real kubelets.
//
// An environment is what one folder says (.kind of a checkout): state.json has what was made, and is written before anything is
// made, so that Down finds everything, also after an Up that was killed. Up checks first, and makes nothing if a check fails; an
// Up that fails later takes down what it has made.
//
// The charts are installed by the commands of docs/install.md. What is changed in kind's clusters beyond that is in prepareTenant.
package kind
