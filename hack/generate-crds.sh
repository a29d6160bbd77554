#!/usr/bin/env bash
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# generate-crds.sh DIRECTORY: generates the CRDs of our API types into a directory.
set -euo pipefail

bin/controller-gen crd paths=./pkg/apis/v1alpha1 output:crd:dir="$1"
# 1e1.5 passes controller-gen's pattern of quantities, and no program could read a list that has it.
sed -i 's/(\[eE](\\+|-)?.*)?\$$/([eE](\\+|-)?[0-9]{1,3}))?$/' "$1"/*.yaml
