// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// StaleReads is a cache with one stale read: the n-th read returns the version before the last one that was read, or
// nothing if there is none.
type StaleReads struct {
	// At is the number of the read that is stale, from 1; 0 for none.
	At int

	lock    sync.Mutex
	reads   int
	objects map[string][]client.Object
	lists   map[string][][]runtime.Object
}

// Reads is how many reads there have been.
func (s *StaleReads) Reads() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.reads
}

// Client returns the client of a process that reads from the cache, and writes by the direct one.
func (s *StaleReads) Client(direct client.WithWatch) client.WithWatch {
	return interceptor.NewClient(direct, interceptor.Funcs{Get: s.get, List: s.list})
}

func (s *StaleReads) get(ctx context.Context, direct client.WithWatch, key client.ObjectKey, object client.Object,
	options ...client.GetOption) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.reads++
	err := direct.Get(ctx, key, object, options...)
	if s.reads > s.At {
		return err // what was read is for the stale read alone
	}
	name := fmt.Sprintf("%T %s", object, key)
	versions := s.objects[name]
	if err == nil && (len(versions) == 0 || versions[len(versions)-1].GetResourceVersion() != object.GetResourceVersion()) {
		copied, _ := object.DeepCopyObject().(client.Object)
		versions = append(versions, copied)
		if s.objects == nil {
			s.objects = map[string][]client.Object{}
		}
		s.objects[name] = versions
	}
	if s.reads != s.At {
		return err
	}
	if len(versions) > 1 {
		return assign(versions[len(versions)-2], object)
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.String())
}

func (s *StaleReads) list(ctx context.Context, direct client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.reads++
	err := direct.List(ctx, list, options...)
	if s.reads > s.At {
		return err
	}
	name := fmt.Sprintf("%T %+v", list, (&client.ListOptions{}).ApplyOptions(options))
	versions := s.lists[name]
	if err == nil {
		items, err := meta.ExtractList(list.DeepCopyObject())
		if err != nil {
			return err
		}
		if len(versions) == 0 || !equality.Semantic.DeepEqual(versions[len(versions)-1], items) {
			versions = append(versions, items)
			if s.lists == nil {
				s.lists = map[string][][]runtime.Object{}
			}
			s.lists[name] = versions
		}
	}
	if s.reads != s.At {
		return err
	}
	if len(versions) > 1 {
		return meta.SetList(list, versions[len(versions)-2])
	}
	return meta.SetList(list, nil)
}

func assign(from, target client.Object) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(fields, target)
}

// LateWatches returns a wrapper for the transport of a client: what a watch says arrives up to a while later, as from a busy API
// server. The order stays, and other requests are not delayed, so a cache of the client is behind what the client has written.
func LateWatches(most time.Duration) transport.WrapperFunc {
	return lateWatches(func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(most)):
		}
	})
}

// lateWatches calls wait with the context of the watch before each part of it is handed on.
func lateWatches(wait func(context.Context)) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil && request.URL.Query().Get("watch") == "true" {
				response.Body = &lateBody{ReadCloser: response.Body, wait: func() { wait(request.Context()) }}
			}
			return response, err
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// lateBody waits after each read, before the reader gets what was read.
type lateBody struct {
	io.ReadCloser
	wait func()
}

// Read implements io.Reader.
func (b *lateBody) Read(buffer []byte) (int, error) {
	count, err := b.ReadCloser.Read(buffer)
	b.wait()
	return count, err
}
