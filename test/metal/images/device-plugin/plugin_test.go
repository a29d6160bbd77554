// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// kubelet is a fake kubelet that plugins register with.
type kubelet struct {
	deviceplugin.UnimplementedRegistrationServer
	registered chan *deviceplugin.RegisterRequest
	// answers, if it is set, is what the kubelet waits for before it answers.
	answers chan struct{}
}

func (k *kubelet) Register(_ context.Context, request *deviceplugin.RegisterRequest) (*deviceplugin.Empty, error) {
	k.registered <- request
	if k.answers != nil {
		<-k.answers
	}
	return &deviceplugin.Empty{}, nil
}

// serve starts a kubelet in the directory. It drops all plugins, as a real one does.
func serve(t *testing.T, directory string) (*kubelet, *grpc.Server) {
	t.Helper()
	sockets, err := filepath.Glob(filepath.Join(directory, "*.sock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, socket := range sockets {
		if err := os.Remove(socket); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("unix", filepath.Join(directory, kubeletSocket))
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{registered: make(chan *deviceplugin.RegisterRequest, 1)}
	server := grpc.NewServer()
	deviceplugin.RegisterRegistrationServer(server, k)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return k, server
}

func TestDevicesAreAdvertisedToEachKubelet(t *testing.T) {
	directory, path := t.TempDir(), filepath.Join(t.TempDir(), "devices.json")
	if err := os.WriteFile(path, []byte(`{"nvidia.com/gpu": ["GPU-0", "GPU-1"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, path, directory) }()
	defer func() {
		cancel(errors.New("the test is over"))
		if err := <-done; err != nil {
			t.Errorf("it ended with an error: %v", err)
		}
	}()
	for _, which := range []string{"first", "second"} {
		k, server := serve(t, directory)
		var request *deviceplugin.RegisterRequest
		select {
		case request = <-k.registered:
		case err := <-done:
			t.Fatalf("it ended before it registered with the %s kubelet: %v", which, err)
		}
		if request.GetResourceName() != "nvidia.com/gpu" || request.GetVersion() != deviceplugin.Version {
			t.Errorf("it registered %s by version %s with the %s kubelet", request.GetResourceName(), request.GetVersion(), which)
		}
		connection, err := grpc.NewClient("unix://"+filepath.Join(directory, request.GetEndpoint()),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		checkPlugin(t, deviceplugin.NewDevicePluginClient(connection))
		_ = connection.Close()
		server.Stop()
	}
}

// A stop while the kubelet has not answered yet is not an error.
func TestStopDuringRegistration(t *testing.T) {
	directory, path := t.TempDir(), filepath.Join(t.TempDir(), "devices.json")
	if err := os.WriteFile(path, []byte(`{"nvidia.com/gpu": ["GPU-0"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	k, server := serve(t, directory)
	defer server.Stop()
	k.answers = make(chan struct{})
	defer close(k.answers)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx, path, directory) }()
	select {
	case <-k.registered:
	case err := <-done:
		t.Fatalf("it ended before it registered: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("it ended with an error: %v", err)
	}
}

func checkPlugin(t *testing.T, client deviceplugin.DevicePluginClient) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := client.ListAndWatch(ctx, &deviceplugin.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	response, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, device := range response.GetDevices() {
		got[device.GetID()] = device.GetHealth()
	}
	if diff := cmp.Diff(map[string]string{"GPU-0": deviceplugin.Healthy, "GPU-1": deviceplugin.Healthy}, got); diff != "" {
		t.Errorf("other devices are advertised than the server has, -want +got:\n%s", diff)
	}
	allocated, err := client.Allocate(ctx, &deviceplugin.AllocateRequest{
		ContainerRequests: []*deviceplugin.ContainerAllocateRequest{{DevicesIds: []string{"GPU-1"}}, {DevicesIds: []string{"GPU-0"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var visible []string
	for _, container := range allocated.GetContainerResponses() {
		visible = append(visible, container.GetEnvs()[visibleDevices])
	}
	if diff := cmp.Diff([]string{"GPU-1", "GPU-0"}, visible); diff != "" {
		t.Errorf("containers get the wrong IDs, -want +got:\n%s", diff)
	}
}

func TestInvalidInventory(t *testing.T) {
	cases := map[string]struct {
		reason, content, want string
	}{
		"NotJSON": {reason: "The error has an example.", content: "gpus: 2", want: "such as {"},
		"NoResource": {reason: "A Node has no resource of that name.", content: `{"gpu": ["GPU-0"]}`,
			want: "\"gpu\" is not the name of an extended resource"},
		"Twice": {reason: "The kubelet would count equal IDs as one device.", content: `{"nvidia.com/gpu": ["GPU-0", "GPU-0"]}`,
			want: "an ID of their own"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "devices.json")
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := readInventory(path); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nerror is %v, want one with %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestWaitForKubelet(t *testing.T) {
	cases := map[string]struct {
		reason  string
		prepare func(t *testing.T, directory string)
		want    bool
	}{
		"None": {reason: "The server has not joined yet.", prepare: func(*testing.T, string) {}},
		"Left": {
			reason: "After a power cut the socket of the last kubelet is left. The next kubelet removes all sockets, also ours " +
				"if " +
				"it were there.",
			prepare: func(t *testing.T, directory string) {
				listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(directory, kubeletSocket)})
				if err != nil {
					t.Fatal(err)
				}
				listener.SetUnlinkOnClose(false)
				if err := listener.Close(); err != nil {
					t.Fatal(err)
				}
			},
		},
		"Listens": {reason: "The plugin was started late, or again.", prepare: func(t *testing.T, directory string) { serve(t, directory) },
			want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			tc.prepare(t, directory)
			if got := kubeletListens(directory); got != tc.want {
				t.Errorf("%s\ngot %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}
