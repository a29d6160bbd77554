// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
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
	return listen(t, bind(t, directory))
}

// bind makes the socket of a kubelet, which does not listen yet.
func bind(t *testing.T, directory string) *os.File {
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
	socket, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(socket), kubeletSocket)
	t.Cleanup(func() { _ = file.Close() })
	if err := syscall.Bind(socket, &syscall.SockaddrUnix{Name: filepath.Join(directory, kubeletSocket)}); err != nil {
		t.Fatal(err)
	}
	return file
}

// listen has a kubelet listen.
func listen(t *testing.T, socket *os.File) (*kubelet, *grpc.Server) {
	t.Helper()
	if err := syscall.Listen(int(socket.Fd()), 16); err != nil {
		t.Fatal(err)
	}
	listener, err := net.FileListener(socket)
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

// started runs the command until the test ends, and fails the test if it ends with an error.
func started(t *testing.T, devices, directory string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "devices.json")
	if err := os.WriteFile(path, []byte(devices), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, path, directory) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it ended with an error: %v", err)
		}
	})
}

func TestDevicesAreAdvertisedToEachKubelet(t *testing.T) {
	directory := t.TempDir()
	started(t, `{"nvidia.com/gpu": ["GPU-0", "GPU-1"]}`, directory)
	for _, which := range []string{"first", "second"} {
		k, server := serve(t, directory)
		request := poll.Receive(t, "the registration with the "+which+" kubelet", k.registered)
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

// The plugin may come before the kubelet, after it, and at each moment of its start.
func TestRegisterWhenKubeletListens(t *testing.T) {
	const plugin = "nvidia.com_gpu.sock"
	cases := map[string]struct {
		reason string
		// kubelet starts one, before the plugin and after it.
		kubelet func(t *testing.T, directory string, start func()) *kubelet
	}{
		"Later": {reason: "The server has not joined yet.",
			kubelet: func(t *testing.T, directory string, start func()) *kubelet {
				start()
				k, _ := serve(t, directory)
				return k
			}},
		"Before": {reason: "The plugin was started late, or again.",
			kubelet: func(t *testing.T, directory string, start func()) *kubelet {
				k, _ := serve(t, directory)
				start()
				return k
			}},
		"Binds": {reason: "The socket is there before the kubelet listens on it, and no event says when it does.",
			kubelet: func(t *testing.T, directory string, start func()) *kubelet {
				socket := bind(t, directory)
				start()
				poll.Eventually(t, "the plugin has found the socket", exists(filepath.Join(directory, plugin)))
				k, _ := listen(t, socket)
				return k
			}},
		"Left": {reason: "After a power cut the socket of the last kubelet is left. The next one removes it, and ours.",
			kubelet: func(t *testing.T, directory string, start func()) *kubelet {
				left := bind(t, directory)
				start()
				poll.Eventually(t, "the plugin has found the socket", exists(filepath.Join(directory, plugin)))
				if err := left.Close(); err != nil {
					t.Fatal(err)
				}
				k, _ := serve(t, directory)
				return k
			}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			k := tc.kubelet(t, directory, func() { started(t, `{"nvidia.com/gpu": ["GPU-0"]}`, directory) })
			if got := poll.Receive(t, "the registration. "+tc.reason, k.registered).GetEndpoint(); got != plugin {
				t.Errorf("%s\nit registered %q, want %q", tc.reason, got, plugin)
			}
			poll.Eventually(t, "the plugin's socket is there. "+tc.reason, exists(filepath.Join(directory, plugin)))
		})
	}
}

// exists returns a check that a file is there.
func exists(path string) func(context.Context) error {
	return func(context.Context) error {
		_, err := os.Stat(path)
		return err
	}
}

// A stop while the kubelet has not answered yet is not an error.
func TestStopDuringRegistration(t *testing.T) {
	directory := t.TempDir()
	k, server := serve(t, directory)
	t.Cleanup(server.Stop)
	k.answers = make(chan struct{})
	t.Cleanup(func() { close(k.answers) }) // after the plugin has ended
	started(t, `{"nvidia.com/gpu": ["GPU-0"]}`, directory)
	poll.Receive(t, "the registration", k.registered)
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
