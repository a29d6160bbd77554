// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/fleet"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/rules"
)

// object is a pointer to an object.
type object[T any] interface {
	*T
	client.Object
}

// handler answers requests about one kind.
type handler[T any, P object[T]] struct {
	kind  string
	fleet *fleet.Fleet
	clock clock.PassiveClock
	// written looks at an object that is created, when before is nil, or changed.
	written func(fleet rules.Fleet, before, after P) rules.Verdict
	// deleted looks at the deletion of an object; nil admits it.
	deleted func(fleet rules.Fleet, name string) rules.Verdict
}

// Handle implements admission.Handler.
func (h *handler[T, P]) Handle(ctx context.Context, request admission.Request) admission.Response {
	begin := h.clock.Now()
	response := h.handle(ctx, &request)
	measure(h.kind, string(request.Operation), h.clock.Since(begin))
	return response
}

func (h *handler[T, P]) handle(ctx context.Context, request *admission.Request) admission.Response {
	view := h.fleet.For(ctx)
	verdict, err := h.judge(view, request)
	if err != nil {
		countFailure(h.kind)
		return admission.Errored(http.StatusBadRequest, err)
	}
	if err := view.Err(); err != nil {
		countFailure(h.kind)
		log.FromContext(ctx).Error(err, "reading from a cache")
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("looking at what there is, %w", err))
	}
	count(h.kind, verdict)
	return answer(request, verdict)
}

// judge has the rules look at what the request is about. The error is about a request that cannot be read.
func (h *handler[T, P]) judge(view rules.Fleet, request *admission.Request) (rules.Verdict, error) {
	var before, after P
	var err error
	switch request.Operation {
	case admissionv1.Create, admissionv1.Update:
		if after, err = decode[T, P](request.Object); err != nil {
			return rules.Verdict{}, err
		}
		if !after.GetDeletionTimestamp().IsZero() {
			return rules.Verdict{}, nil // on its way out: nothing may keep it
		}
	case admissionv1.Delete:
		if h.deleted != nil {
			return h.deleted(view, request.Name), nil
		}
		return rules.Verdict{}, nil
	default:
		return rules.Verdict{}, nil
	}
	if request.Operation == admissionv1.Update {
		if before, err = decode[T, P](request.OldObject); err != nil {
			return rules.Verdict{}, err
		}
	}
	return h.written(view, before, after), nil
}

func decode[T any, P object[T]](raw runtime.RawExtension) (P, error) {
	into := P(new(T))
	if err := json.Unmarshal(raw.Raw, into); err != nil {
		return nil, fmt.Errorf("reading the object, %w", err)
	}
	return into, nil
}

// answer puts a verdict in the form in which the API server itself refuses: as the status of an invalid object, of which
// kubectl shows each field in a line of its own.
func answer(request *admission.Request, verdict rules.Verdict) admission.Response {
	response := admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: verdict.Allowed(), Warnings: verdict.Warnings}}
	if verdict.Allowed() {
		return response
	}
	resource := schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}
	refusal := apierrors.NewForbidden(resource, request.Name, errors.New(verdict.Refusal))
	if len(verdict.Errors) > 0 {
		kind := schema.GroupKind{Group: request.Kind.Group, Kind: request.Kind.Kind}
		refusal = apierrors.NewInvalid(kind, cmp.Or(request.Name, "(name to be generated)"), verdict.Errors)
	}
	status := refusal.Status()
	response.Result = &status
	return response
}
