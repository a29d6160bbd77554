// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestReport: the report says which of its own columns have times that real servers change, and ends with a command and a page that
// exist.
func TestReport(t *testing.T) {
	var out bytes.Buffer
	b := &board{options: Options{Out: &out}, journal: newJournal(&out)}
	b.printReport([]placement{{pod: "train", claim: "default-a", host: "server-01", node: "default-a"}})
	table, note, found := strings.Cut(out.String(), "\n\nPENDING -> CLAIMED and ")
	if !found {
		t.Fatalf("nothing is note of the times:\n%s", table)
	}
	columns, _, _ := strings.Cut(note, " do not depend on the servers.")
	for _, column := range append(strings.Split(columns, " and "), "PENDING -> CLAIMED") {
		if !strings.Contains(table, column) {
			t.Errorf("the report has no column %q:\n%s", column, table)
		}
	}
	place := regexp.MustCompile(`(bin/sandbox up .+)\n\((\S+), "([^"]+)"\)`).FindStringSubmatch(note)
	if place == nil {
		t.Fatalf("it does not end with how to go on: %s", note)
	}
	page, err := os.ReadFile("../../../" + place[2])
	if err != nil {
		t.Fatal(err)
	}
	if section := "\n## " + place[3] + "\n"; !strings.Contains(string(page), section) || !strings.Contains(string(page), place[1]) {
		t.Errorf("%s has no section %q with %s", place[2], place[3], place[1])
	}
}
