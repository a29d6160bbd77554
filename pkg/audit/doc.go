// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package audit knows how an API server writes down who has asked it for what, and reads that: by it, tests tell which
// rights of our programs are used at all. Nothing is written unless somebody asks for it.
package audit
