// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// same matches the lines of a recording that each run prints: commands, headings of tables, and what explains.
var same = regexp.MustCompile(`^(\$ .*|[A-Z ]+|.*[✓✗→].*)$`)

// TestRecording makes the recording of README again. The commands, the tables and the explanations must be those of the one that is there.
func TestRecording(t *testing.T) {
	system.Only(t)
	picture := filepath.Join(t.TempDir(), "story.svg")
	if output, err := exec.CommandContext(t.Context(), "../../hack/recording.sh", picture).CombinedOutput(); err != nil {
		t.Fatalf("hack/recording.sh (run `make tools build` first): %v\n%s", err, output)
	}
	if diff := cmp.Diff(recorded(t, picture), recorded(t, "../../docs/pictures/story.svg")); diff != "" {
		t.Errorf("docs/pictures/story.svg is not what the commands print today: run hack/recording.sh (+ is the picture):\n%s", diff)
	}
}

// recorded returns the lines of a recording that must be the same.
func recorded(t *testing.T, picture string) (lines []string) {
	t.Helper()
	content, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	var svg struct {
		Groups []struct {
			Lines []string `xml:"text"`
		} `xml:"g"`
	}
	if err := xml.Unmarshal(content, &svg); err != nil {
		t.Fatalf("%s is no XML, %v", picture, err)
	}
	for _, group := range svg.Groups {
		for _, line := range group.Lines {
			// Columns are as wide as what is in them, such as ages.
			if line = regexp.MustCompile(`[  ]+`).ReplaceAllString(line, " "); same.MatchString(line) {
				lines = append(lines, line)
			}
		}
	}
	if len(lines) == 0 {
		t.Fatalf("%s has no commands", picture)
	}
	return lines
}
