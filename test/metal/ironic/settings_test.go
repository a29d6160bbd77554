// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSettings(t *testing.T) {
	tree, dir := t.TempDir(), t.TempDir()
	made := settings{Dir: dir, Listen: "0.0.0.0", ListenAPI: "127.0.0.1", API: "http://127.0.0.1:6385", Port: 6385,
		CallbackHost: "metal3", InspectorPort: 5050, URL: "http://metal3:6385",
		FilesURL: "http://127.0.0.1:8080", AgentTimeout: seconds(0, time.Minute),
		PowerTimeout: seconds(5*time.Second, time.Minute)}
	if err := made.write(tree); err == nil || !strings.Contains(err.Error(), "empty database") {
		t.Errorf("there is no database to begin with, and the error is %v", err)
	}
	for _, schema := range databases {
		if err := os.WriteFile(filepath.Join(tree, schema), []byte("schema"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := made.write(tree); err != nil {
		t.Fatal(err)
	}
	for program, lines := range map[string][]string{Name: {
		"host_ip = 127.0.0.1", "port = 6385", "endpoint_override = http://metal3:6385",
		"http_url = http://127.0.0.1:8080", "http_root = " + dir + "/http", "connection = sqlite:///" + dir + "/ironic.sqlite",
		"clean_callback_timeout = 60", "deploy_callback_timeout = 60", "power_state_change_timeout = 5", "auth_strategy = noauth",
		"callback_endpoint_override = http://metal3:5050",
	}, inspector: {
		"listen_address = 0.0.0.0", "listen_port = 5050", "connection = sqlite:///" + dir + "/ironic-inspector.sqlite",
		"endpoint_override = http://127.0.0.1:6385", "timeout = 60",
	}} {
		content, err := os.ReadFile(made.path(program))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if !strings.Contains(string(content), "\n"+line+"\n") {
				t.Errorf("the settings of %s do not hold %q:\n%s", program, line, content)
			}
		}
	}
	if database, err := os.ReadFile(filepath.Join(dir, "ironic.sqlite")); err != nil || string(database) != "schema" {
		t.Errorf("the database is %q, %v", database, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "http")); err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	if err := Check(t.TempDir()); err == nil || !strings.Contains(err.Error(), "run `make ironic`") {
		t.Errorf("there is no Ironic, and the error is %v", err)
	}
}
