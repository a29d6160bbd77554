// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWriteJUnit: what reads results finds each test with its result, and why it was skipped or has failed.
func TestWriteJUnit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ai.xml")
	if err := writeJUnit(path, []byte(`=== RUN   TestGang
--- PASS: TestGang (12.50s)
=== RUN   TestScaling
=== RUN   TestScaling/DRA
    scaling_test.go:9: there is no driver
=== RUN   TestScaling/DevicePlugin
    scaling_test.go:12: no node came
--- FAIL: TestScaling (3.00s)
    --- SKIP: TestScaling/DRA (1.00s)
    --- FAIL: TestScaling/DevicePlugin (2.00s)
FAIL
FAIL	example.com/test/ai	15.513s
FAIL
`)); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var written struct {
		Suites []struct {
			Name  string `xml:"name,attr"`
			Cases []struct {
				Name    string  `xml:"name,attr"`
				Failure *string `xml:"failure"`
				Skipped *string `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(content, &written); err != nil || len(written.Suites) != 1 {
		t.Fatalf("there are %d suites, error %v, in\n%s", len(written.Suites), err, content)
	}
	got := map[string]string{}
	for _, tc := range written.Suites[0].Cases {
		got[tc.Name] = "passed"
		if tc.Skipped != nil {
			got[tc.Name] = "skipped: " + strings.TrimSpace(*tc.Skipped)
		}
		if tc.Failure != nil {
			got[tc.Name] = "failed: " + strings.TrimSpace(*tc.Failure)
		}
	}
	want := map[string]string{
		"TestGang": "passed", "TestScaling": "failed: ", "TestScaling/DRA": "skipped: scaling_test.go:9: there is no driver",
		"TestScaling/DevicePlugin": "failed: scaling_test.go:12: no node came",
	}
	if diff := cmp.Diff(want, got); diff != "" || written.Suites[0].Name != "example.com/test/ai" {
		t.Errorf("results of %s (-want +got):\n%s\n%s", written.Suites[0].Name, diff, content)
	}
}
