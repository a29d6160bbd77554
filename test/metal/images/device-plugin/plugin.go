// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/validation"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// visibleDevices is the environment variable in which a container is told the IDs of its devices.
const visibleDevices = "VISIBLE_DEVICES"

// plugin serves the devices of one resource to the kubelet. All of them are healthy for as long as it runs.
type plugin struct {
	deviceplugin.UnimplementedDevicePluginServer
	resource string
	ids      []string
	server   *grpc.Server
	// stop ends the plugin, and returns when it has ended.
	stop func()
}

// start listens in the kubelet's directory, and tells the kubelet so as soon as it listens, too. It sends the error if the kubelet refuses.
func start(ctx context.Context, directory, resource string, ids []string, failed chan<- error) (*plugin, error) {
	p := &plugin{resource: resource, ids: ids, server: grpc.NewServer()}
	deviceplugin.RegisterDevicePluginServer(p.server, p)
	socket := strings.ReplaceAll(resource, "/", "_") + ".sock"
	path := filepath.Join(directory, socket)
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("removing the socket that was left, %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening for the kubelet, %w", err)
	}
	go func() {
		// It ends with stop. The kubelet notices any other error.
		_ = p.server.Serve(listener)
	}()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := p.register(ctx, directory, socket); err != nil {
			select {
			case failed <- err:
			case <-ctx.Done():
			}
		}
	}()
	p.stop = func() {
		cancel()
		<-ended
		p.server.Stop()
	}
	return p, nil
}

func (p *plugin) register(ctx context.Context, directory, socket string) error {
	connection, err := grpc.NewClient("unix://"+filepath.Join(directory, kubeletSocket),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connecting to the kubelet, %w", err)
	}
	defer func() { _ = connection.Close() }()
	request := &deviceplugin.RegisterRequest{Version: deviceplugin.Version, Endpoint: socket, ResourceName: p.resource}
	for {
		_, err := deviceplugin.NewRegistrationClient(connection).Register(ctx, request, grpc.WaitForReady(true))
		switch status.Code(err) {
		case codes.OK:
			return nil
		case codes.Unavailable: // the kubelet has ended before it answered, and starts again
		default:
			return fmt.Errorf("registering %s with the kubelet, %w", p.resource, err)
		}
	}
}

// GetDevicePluginOptions enables no optional call.
func (p *plugin) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{}, nil
}

// ListAndWatch sends the devices once: they do not change while the server runs.
func (p *plugin) ListAndWatch(_ *deviceplugin.Empty, stream grpc.ServerStreamingServer[deviceplugin.ListAndWatchResponse]) error {
	response := &deviceplugin.ListAndWatchResponse{}
	for _, id := range p.ids {
		response.Devices = append(response.Devices, &deviceplugin.Device{ID: id, Health: deviceplugin.Healthy})
	}
	if err := stream.Send(response); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate gives each container the IDs of its devices.
func (p *plugin) Allocate(_ context.Context, request *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	response := &deviceplugin.AllocateResponse{}
	for _, container := range request.GetContainerRequests() {
		response.ContainerResponses = append(response.ContainerResponses, &deviceplugin.ContainerAllocateResponse{
			Envs: map[string]string{visibleDevices: strings.Join(container.GetDevicesIds(), ",")},
		})
	}
	return response, nil
}

// inventory are the IDs of a server's devices, by the name of their resource, such as nvidia.com/gpu.
type inventory map[string][]string

func readInventory(path string) (inventory, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the inventory, %w", err)
	}
	devices := inventory{}
	if err := json.Unmarshal(content, &devices); err != nil {
		return nil, fmt.Errorf("reading the inventory %s, it is not an object of resource names with lists of device IDs, such as "+
			"{\"nvidia.com/gpu\": [\"GPU-0\"]}: %w", path, err)
	}
	for _, resource := range slices.Sorted(maps.Keys(devices)) {
		if problems := validation.IsQualifiedName(resource); len(problems) > 0 || !strings.Contains(resource, "/") {
			return nil, fmt.Errorf("reading the inventory %s, %q is not the name of an extended resource, such as nvidia.com/gpu", path, resource)
		}
		ids := slices.Sorted(slices.Values(devices[resource]))
		if len(slices.Compact(ids)) != len(devices[resource]) || slices.Contains(devices[resource], "") {
			return nil, fmt.Errorf("reading the inventory %s, the devices of %s do not each have an ID of their own", path, resource)
		}
	}
	return devices, nil
}
