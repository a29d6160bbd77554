// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
)

const (
	// screenName is the plugin of kubectl, which serves the page about the fleet.
	screenName = "kubectl-metal3"
	// viewerUser may read what the page shows, in both clusters, and nothing else.
	viewerUser = "karpenter-metal3-viewer"
	viewerFile = "manifests/viewer.yaml"
)

//go:embed manifests/viewer.yaml
var viewerRights embed.FS

// startScreen starts the page about the fleet, and returns when its address is known.
func (s *Sandbox) startScreen(ctx context.Context) error {
	rights, err := rbac.Read(viewerRights, viewerFile, "")
	if err != nil {
		return err
	}
	for kubeconfig, c := range map[string]*cluster.Cluster{
		s.kubeconfigs.ViewerManagement: s.management, s.kubeconfigs.ViewerTenant: s.tenant,
	} {
		for _, object := range rights {
			if err := cluster.Apply(ctx, c.Client, object); err != nil {
				return fmt.Errorf("granting %s its rights, %w", viewerUser, err)
			}
		}
		if err := c.WriteKubeconfig(kubeconfig, viewerUser); err != nil {
			return err
		}
	}
	if err := s.run(process.Spec{
		Name: screenName, Rank: cluster.RankClients + 1, Restart: true,
		Args: []string{"ui", "--kubeconfig=" + s.kubeconfigs.ViewerManagement, "--tenant-kubeconfig=" + s.kubeconfigs.ViewerTenant},
	}); err != nil {
		return err
	}
	return cluster.Await(ctx, "the page about the fleet to be served", func(context.Context) error {
		if s.Screen() == "" {
			return errors.New("it has not printed its address")
		}
		return nil
	})
}

// Screen returns the address of the page about the fleet; empty if there is none.
func (s *Sandbox) Screen() string { return screenOf(s.config.Dir) }

// screenOf is the address that the page of the sandbox in dir has printed last: it has another token when it is started again.
func screenOf(dir string) string {
	lines, err := process.LastLines(filepath.Join(dir, "log", screenName+".log"), logTail)
	if err != nil {
		return "" // it was not started
	}
	for _, line := range slices.Backward(lines) {
		if strings.HasPrefix(line, "http://127.0.0.1:") {
			return line
		}
	}
	return ""
}
