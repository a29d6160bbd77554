// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func testProvenance(t *testing.T, c checkout, files dist) {
	type digests struct{ SHA256, GitCommit string }
	var statement struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []struct {
			Name   string
			Digest digests
		}
		Predicate struct {
			BuildDefinition struct {
				BuildType            string
				ResolvedDependencies []struct{ Digest digests }
			}
			RunDetails struct{ Builder struct{ ID string } }
		}
	}
	if err := json.Unmarshal(files.read(t, "provenance.json"), &statement); err != nil {
		t.Fatal(err)
	}
	if statement.Type != "https://in-toto.io/Statement/v1" || statement.PredicateType != "https://slsa.dev/provenance/v1" ||
		statement.Predicate.RunDetails.Builder.ID == "" || statement.Predicate.BuildDefinition.BuildType == "" {
		t.Errorf("it is no provenance: %+v", statement)
	}
	commit := strings.TrimSpace(run(t, c.dir, nil, "git", "rev-parse", "HEAD"))
	if got := statement.Predicate.BuildDefinition.ResolvedDependencies[0].Digest.GitCommit; got != commit {
		t.Errorf("it is made of %s, and was of %s", got, commit)
	}
	want, got := files.sums(t), map[string]string{}
	for name := range want {
		if isSigned(name) || name == "SHA256SUMS" || name == "provenance.json" {
			delete(want, name)
		}
	}
	stored := 0
	for _, subject := range statement.Subject {
		if strings.Contains(subject.Name, "/") {
			stored++
			continue
		}
		got[subject.Name] = subject.Digest.SHA256
	}
	if diff := cmp.Diff(want, got); diff != "" || stored != 3 {
		t.Errorf("it is about %d images and charts, want 3, and the files (-want +got):\n%s", stored, diff)
	}

	var bundle struct {
		DSSEEnvelope struct {
			PayloadType string
			Payload     []byte
			Signatures  []struct{ Sig string }
		}
	}
	if err := json.Unmarshal(files.read(t, "provenance.sigstore.json"), &bundle); err != nil {
		t.Fatal(err)
	}
	envelope := bundle.DSSEEnvelope
	if string(envelope.Payload) != strings.TrimSuffix(string(files.read(t, "provenance.json")), "\n") || len(envelope.Signatures) != 1 {
		t.Fatal("what is signed is not provenance.json")
	}
	if err := verify(publicKey(t, files.read(t, "cosign.pub")), authenticated(envelope.PayloadType, envelope.Payload),
		envelope.Signatures[0].Sig); err != nil {
		t.Errorf("the signature of the provenance: %v", err)
	}
}
