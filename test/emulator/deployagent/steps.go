// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package deployagent

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// hardwareManager is the name under which steps are listed, and its version, which must not change during a deployment.
const hardwareManager = "EmulatedHardwareManager"

// step is a step that Ironic can execute.
type step struct {
	Name      string `json:"step"`
	Interface string `json:"interface"`
	// Priority is 0 for steps that are only executed on request.
	Priority        int            `json:"priority"`
	RebootRequested bool           `json:"reboot_requested"`
	Abortable       bool           `json:"abortable"`
	Arguments       map[string]any `json:"argsinfo"`
}

func cleanSteps() []step {
	return []step{
		{Name: "erase_devices_metadata", Interface: "deploy", Priority: 10, Abortable: true},
		{Name: "erase_devices", Interface: "deploy", Abortable: true},
		{Name: "erase_devices_express", Interface: "deploy", Abortable: true},
	}
}

func deploySteps() []step {
	return []step{
		{Name: "erase_devices_metadata", Interface: "deploy"},
		{Name: "write_image", Interface: "deploy"},
	}
}

// known are the commands, and whether the response to one can come before its end.
var known = map[string]bool{
	"clean.get_clean_steps": false, "clean.execute_clean_step": true, "deploy.get_deploy_steps": false, "deploy.execute_deploy_step": true,
	"standby.prepare_image": true, "standby.cache_image": true, "standby.get_partition_uuids": false, "standby.sync": false,
	"standby.power_off": false, "standby.run_image": false, "image.install_bootloader": true, "log.collect_system_logs": false,
}

// execute executes a command.
func (a *Agent) execute(ctx context.Context, name string, params map[string]any) (any, error) {
	switch name {
	case "clean.get_clean_steps":
		return listed("clean_steps", cleanSteps()), nil
	case "deploy.get_deploy_steps":
		return listed("deploy_steps", deploySteps()), nil
	case "clean.execute_clean_step":
		return a.executeStep(ctx, "clean", params)
	case "deploy.execute_deploy_step":
		return a.executeStep(ctx, "deploy", params)
	case "standby.prepare_image", "standby.cache_image":
		written, err := a.writeImage(ctx, params)
		if err != nil {
			return nil, err
		}
		return map[string]string{"result": written}, nil
	case "standby.get_partition_uuids":
		// A whole-disk image has its own partitions.
		return map[string]any{}, nil
	case "standby.power_off":
		a.setState("powering off")
		a.options.Server.PowerOff()
	case "standby.run_image":
		a.setState("rebooting")
		a.options.Server.Reboot()
	case "log.collect_system_logs":
		return a.collectLogs()
	}
	// sync and install_bootloader do nothing here: the image is on the disk, with its boot loader.
	return nil, nil
}

func listed(key string, steps []step) map[string]any {
	return map[string]any{
		key:                        map[string]any{hardwareManager: steps},
		"hardware_manager_version": map[string]string{hardwareManager: "1.0"},
	}
}

// executeStep executes a clean or deploy step.
func (a *Agent) executeStep(ctx context.Context, kind string, params map[string]any) (any, error) {
	given, ok := params["step"].(map[string]any)
	if !ok {
		return nil, &commandError{Type: "InvalidCommandParamsError", Code: 400, Message: "Invalid command parameters",
			Details: "there is no step"}
	}
	a.setState("executing %s step %s", kind, stepName(given))
	answer, err := a.doStep(ctx, given)
	if err != nil {
		return nil, err
	}
	return map[string]any{kind + "_result": answer, kind + "_step": withoutArguments(given)}, nil
}

func (a *Agent) doStep(ctx context.Context, given map[string]any) (any, error) {
	switch given["step"] {
	case "erase_devices", "erase_devices_metadata", "erase_devices_express":
		return nil, a.options.Server.Disk.Erase()
	case "write_image":
		arguments, _ := given["args"].(map[string]any)
		return a.writeImage(ctx, arguments)
	}
	return nil, &commandError{
		Type: "HardwareManagerMethodNotFound", Code: 404, Message: "No hardware manager has the step",
		Details: fmt.Sprintf("step %s is not supported by this agent", stepName(given)),
	}
}

// collectLogs returns what Ironic keeps when a deployment has failed: the commands, in the form of the real agent's logs.
func (a *Agent) collectLogs() (any, error) {
	shown, err := a.commands.show()
	if err != nil {
		return nil, err
	}
	indented := &bytes.Buffer{}
	if err := json.Indent(indented, shown, "", "  "); err != nil {
		return nil, err
	}
	archive := &bytes.Buffer{}
	compressed := gzip.NewWriter(archive)
	files := tar.NewWriter(compressed)
	if err := files.WriteHeader(&tar.Header{Name: "commands.json", Mode: 0o600, Size: int64(indented.Len())}); err != nil {
		return nil, err
	}
	if _, err := files.Write(indented.Bytes()); err != nil {
		return nil, err
	}
	if err := files.Close(); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return map[string]string{"system_logs": base64.StdEncoding.EncodeToString(archive.Bytes())}, nil
}
