// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// unreachable are interceptors of a management cluster that does not answer, while down says so.
func unreachable(down func() bool) interceptor.Funcs {
	refused := func() error {
		if down() {
			return errors.New("dial tcp 192.0.2.1:6443: connect: connection refused")
		}
		return nil
	}
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if err := refused(); err != nil {
				return err
			}
			return c.Get(ctx, key, object, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
			if err := refused(); err != nil {
				return err
			}
			return c.Create(ctx, object, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
			if err := refused(); err != nil {
				return err
			}
			return c.Delete(ctx, object, opts...)
		},
	}
}
