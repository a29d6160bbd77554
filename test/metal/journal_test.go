// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A journal watches the objects of the test in both clusters. It logs their changes, and records when each object was
// first seen in each state.
type journal struct {
	t    *testing.T
	logf func(format string, args ...any)

	mu      sync.Mutex
	objects map[string]client.Object
	words   map[string]string
	times   map[string]time.Time
}

func newJournal(t *testing.T, logf func(format string, args ...any)) *journal {
	return &journal{
		t: t, logf: logf,
		objects: map[string]client.Object{}, words: map[string]string{}, times: map[string]time.Time{},
	}
}

// follow watches the objects of a kind until the context ends.
func (j *journal) follow(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) {
	for ctx.Err() == nil {
		if err := c.List(ctx, list, options...); err != nil {
			continue // the context has ended, or the API server is being stopped
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			j.t.Errorf("reading a list, %v", err)
			return
		}
		for _, item := range items {
			j.record(item.(client.Object), false)
		}
		from := append([]client.ListOption{&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}}, options...)
		watching, err := c.Watch(ctx, list, from...)
		if err != nil {
			continue
		}
		for event := range watching.ResultChan() {
			if object, ok := event.Object.(client.Object); ok {
				j.record(object, event.Type == watch.Deleted)
			}
		}
	}
}

// key names an object: Pod first.
func key(object client.Object) string {
	return reflect.TypeOf(object).Elem().Name() + " " + object.GetName()
}

// record stores an object, and logs it if its description has changed.
func (j *journal) record(object client.Object, gone bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	name := key(object)
	words, steps := describe(object)
	if j.objects[name] = object; gone {
		delete(j.objects, name)
		words = "gone"
	}
	now := time.Now()
	for _, step := range steps {
		if _, seen := j.times[name+" "+step]; !seen {
			j.times[name+" "+step] = now
		}
	}
	if j.words[name] != words {
		j.words[name] = words
		j.logf("  %s: %s", name, words)
	}
}

// when returns the time at which an object was first seen in a state; false if it was not.
func (j *journal) when(name, step string) (time.Time, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	moment, seen := j.times[name+" "+step]
	return moment, seen
}

// look returns the last version of an object, or an error if there is none.
func look[T client.Object](j *journal, name string) (T, error) {
	var none T
	j.mu.Lock()
	defer j.mu.Unlock()
	object, ok := j.objects[reflect.TypeOf(none).Elem().Name()+" "+name].(T)
	if !ok {
		return none, fmt.Errorf("%s %s is not there", reflect.TypeOf(none).Elem().Name(), name)
	}
	return object, nil
}

// list returns the last version of all objects.
func (j *journal) list() []client.Object {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.SortedFunc(maps.Values(j.objects), func(a, b client.Object) int { return strings.Compare(key(a), key(b)) })
}
