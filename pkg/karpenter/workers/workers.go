// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workers limits the number of workers of controllers of Karpenter's core. Each worker is a goroutine, which
// takes about 5 KiB while it waits for work, and core gives some controllers a thousand.
package workers

import (
	"context"
	"fmt"
	"reflect"

	"github.com/awslabs/operatorpkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Limited returns a controller with at most that many workers.
func Limited(core controller.Controller, most int64) controller.Controller {
	return limited{core, most}
}

type limited struct {
	controller.Controller
	most int64
}

// Register registers the controller as core does, including its predicates and rate limits.
func (l limited) Register(ctx context.Context, m manager.Manager) error {
	return l.Controller.Register(ctx, limitingManager{m, l.most})
}

type limitingManager struct {
	manager.Manager
	most int64
}

// field holds the number of workers in controller-runtime's controllers. Their type is internal, and no option of a
// manager overrides a number that the controller itself sets.
const field = "MaxConcurrentReconciles"

// Add implements manager.Manager.
func (m limitingManager) Add(runnable manager.Runnable) error {
	var workers reflect.Value
	if added := reflect.Indirect(reflect.ValueOf(runnable)); added.Kind() == reflect.Struct {
		workers = added.FieldByName(field)
	}
	if !workers.CanSet() || !workers.CanInt() {
		return fmt.Errorf("limiting the workers of a controller, %T has no number %s: this is not the version of controller-runtime that this "+
			"provider is made for", runnable, field)
	}
	workers.SetInt(min(workers.Int(), m.most))
	return m.Manager.Add(runnable)
}
