// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"errors"
	"fmt"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
)

// The controller dies before each of its writes in turn. The next one must finish the work, and do none of it twice.
func TestCrashAtEveryWrite(t *testing.T) {
	// What happens to a Machine in its life, and what must be so once the controller has looked.
	steps := []struct {
		name    string
		prepare func(*fixture)
		check   func(*fixture)
	}{
		{"claimed", func(*fixture) {}, func(w *fixture) { w.mustHaveJoin() }},
		{"registered",
			func(w *fixture) { w.register(w.machine.Name, w.get().Status.ProviderID) },
			func(w *fixture) { w.mustHaveJoined(w.machine.Name) }},
		{"deleted after it joined",
			func(w *fixture) {
				if err := environment.Client.Delete(w.Context(), w.get()); err != nil {
					w.Fatal(err)
				}
			},
			(*fixture).mustHaveNothing},
	}
	crashes := 0
	for writes := 0; ; writes++ {
		process := &faults.Connection{Kind: faults.Crash, At: writes}
		t.Run(fmt.Sprintf("after %d writes", writes), func(t *testing.T) {
			w := newFixture(t)
			controller := w.controller(process)
			for _, step := range steps {
				step.prepare(w)
				_, err := controller.Reconcile(w.Context(), w.get())
				if process.Dead() {
					if err != nil && !errors.Is(err, faults.ErrDead) {
						t.Fatalf("%s: the controller did not pass on the error: %v", step.name, err)
					}
					w.reconcile()
				} else if err != nil {
					t.Fatalf("%s: %v", step.name, err)
				}
				step.check(w)
				// Looking again changes nothing.
				before := w.get().ResourceVersion
				w.reconcile()
				step.check(w)
				if after := w.get().ResourceVersion; after != before {
					t.Errorf("%s: the machine was written although nothing was left to do", step.name)
				}
			}
		})
		if !process.Dead() {
			break
		}
		crashes++
	}
	// The question for the time, token, secret, reference with the version; name, token, secret.
	if want := 7; crashes != want {
		t.Errorf("the controller was killed at %d writes, want %d: it does more or less than this test knows of", crashes, want)
	}
}

// A Machine that is deleted before its server has joined loses its join, whatever a crash has left of it.
func TestCrashAndDeletion(t *testing.T) {
	for writes := range 5 {
		t.Run(fmt.Sprintf("after %d writes", writes), func(t *testing.T) {
			w := newFixture(t)
			_, err := w.controller(&faults.Connection{Kind: faults.Crash, At: writes}).Reconcile(w.Context(), w.get())
			if died := errors.Is(err, faults.ErrDead); died != (writes < 4) {
				t.Fatalf("issued with error %v", err)
			}
			if err := environment.Client.Delete(w.Context(), w.get()); err != nil {
				t.Fatal(err)
			}
			for dying := 0; ; dying++ {
				process := &faults.Connection{Kind: faults.Crash, At: dying}
				_, err := w.controller(process).Reconcile(w.Context(), w.get())
				if !process.Dead() {
					if err != nil {
						t.Fatal(err)
					}
					break
				}
			}
			w.mustHaveNothing()
		})
	}
}
