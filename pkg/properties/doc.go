// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package properties knows the properties of machines: how they are merged, what each key means, and what is wrong with
// a value. It is the one place that does, so that controllers and admission say the same. Everything in it is a function
// of values.
package properties
