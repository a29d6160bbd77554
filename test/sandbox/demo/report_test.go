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
	place := regexp.MustCompile(`bin/sandbox up \((\S+), "([^"]+)"\)`).FindStringSubmatch(note)
	if place == nil {
		t.Fatalf("it does not end with how to go on: %s", note)
	}
	page, err := os.ReadFile("../../../" + place[1])
	if err != nil {
		t.Fatal(err)
	}
	if section := "\n## " + place[2] + "\n"; !strings.Contains(string(page), section) || !strings.Contains(string(page), "bin/sandbox up") {
		t.Errorf("%s has no section %q with that command", place[1], place[2])
	}
}
