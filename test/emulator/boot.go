// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
)

// powerOffTimeout bounds the request that a server makes at power off.
const powerOffTimeout = 10 * time.Second

// disk is the state that a server keeps while it is off. It belongs to the server's current run.
type disk struct {
	// install is the installation of the other fields.
	install string
	// join is the join of the user data.
	join bootstrap.Join
	// identity is kubelet's kubeconfig; nil until the server has joined.
	identity *rest.Config
}

// boot is a run of a server from power-on to power-off, or to a reset.
type boot struct {
	// id is that of the kernel, which differs for each boot.
	id     types.UID
	server Server
	disk   *disk
	config Config
	report func(state State, nodeName, reason string)
}

// run boots the server. It returns when the server is registered or has failed, or the context is done.
func (b *boot) run(ctx context.Context) {
	b.report(Booting, b.disk.join.NodeName, "")
	// 1. cloud-init runs once per installation. A server that has joined only starts its kubelet.
	if b.disk.identity == nil {
		join, err := b.readConfigDrive(ctx)
		if err != nil {
			b.fail(ctx, err)
			return
		}
		b.disk.join = join
		b.report(Joining, join.NodeName, "")
		// 2. kubeadm join.
		if b.disk.identity, err = b.kubeadmJoin(ctx, join); err != nil {
			b.fail(ctx, err)
			return
		}
	}
	// 3. kubelet. It retries for ever.
	if err := b.retry(ctx, Joining, func(ctx context.Context) error {
		return register(ctx, b.config.Clock.Now(), b.disk.identity, b.server, b.disk.join, b.id)
	}); err != nil {
		return
	}
	b.report(Registered, b.disk.join.NodeName, "")
}

// readConfigDrive reads the user data, once it can be read.
func (b *boot) readConfigDrive(ctx context.Context) (bootstrap.Join, error) {
	var data []byte
	var missing error
	if err := b.retry(ctx, Booting, func(ctx context.Context) (err error) {
		data, err = b.config.Source.UserData(ctx, b.server.Name)
		if errors.Is(err, ErrNoUserData) {
			missing, err = err, nil
		}
		return err
	}); err != nil {
		return bootstrap.Join{}, err
	}
	if missing != nil {
		return bootstrap.Join{}, missing
	}
	return ReadJoin(data)
}

// kubeadmJoin returns the identity that a kubelet has after `kubeadm join`.
func (b *boot) kubeadmJoin(ctx context.Context, join bootstrap.Join) (*rest.Config, error) {
	cluster, err := b.discover(ctx, join)
	if err != nil {
		return nil, fmt.Errorf("discovering the cluster, %w", err)
	}
	identity, err := b.tlsBootstrap(ctx, cluster, join)
	if err != nil {
		return nil, fmt.Errorf("asking for a client certificate, %w", err)
	}
	return identity, nil
}

// fail reports why the server gave up, unless it was switched off meanwhile.
func (b *boot) fail(ctx context.Context, err error) {
	if ctx.Err() == nil {
		b.report(Failed, b.disk.join.NodeName, err.Error())
	}
}

// powerOff removes the Node from kwok, so that its heartbeats stop, like those of a server without power. A missing
// Node or API server is no error.
func (b *boot) powerOff(ctx context.Context) {
	if b.disk.identity == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, powerOffTimeout)
	defer cancel()
	if err := abandon(ctx, b.disk.identity, b.disk.join.NodeName); err != nil {
		b.config.Logger.Info("heartbeats could not be stopped", "server", b.server.Name, "node", b.disk.join.NodeName, "error", err.Error())
	}
}

// retry calls do until it succeeds or the context is done, and reports in between why it did not.
func (b *boot) retry(ctx context.Context, state State, do func(context.Context) error) error {
	return wait.PollUntilContextCancel(ctx, b.config.RetryInterval, true, func(ctx context.Context) (bool, error) {
		err := do(ctx)
		if err != nil && ctx.Err() == nil {
			b.report(state, b.disk.join.NodeName, err.Error())
		}
		return err == nil, nil
	})
}

// retryJoin is retry with kubeadm's bound. The error is the last one.
func (b *boot) retryJoin(ctx context.Context, do func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, b.config.JoinTimeout)
	defer cancel()
	var last error
	permanent := (*permanentError)(nil)
	err := b.retry(bounded, Joining, func(attempt context.Context) error {
		err := do(attempt)
		if errors.As(err, &permanent) {
			return nil
		}
		// The error of an attempt that ran into the deadline says less than the one before it.
		if err != nil && (last == nil || bounded.Err() == nil) {
			last = err
		}
		return err
	})
	switch {
	case permanent != nil:
		return permanent.error
	case err != nil && last != nil && ctx.Err() == nil:
		return fmt.Errorf("gave up after %s, %w", b.config.JoinTimeout, last)
	}
	return err
}

// permanentError is one that kubeadm does not retry.
type permanentError struct{ error }
