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

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/rules"
)

// object is a pointer to an object.
type object[T any] interface {
	*T
	client.Object
}

// handler answers requests about one kind.
type handler[T any, P object[T]] struct {
	kind    string
	cluster *cluster.Cluster
	clock   clock.PassiveClock
	// written validates an object that is created, when before is nil, or updated.
	written func(cluster rules.Cluster, before, after P) rules.Result
	// deleted validates the deletion of an object. Nil admits all.
	deleted func(cluster rules.Cluster, name string) rules.Result
}

// Handle implements admission.Handler.
func (h *handler[T, P]) Handle(ctx context.Context, request admission.Request) admission.Response {
	begin := h.clock.Now()
	response := h.handle(ctx, &request)
	measure(h.kind, string(request.Operation), h.clock.Since(begin))
	return response
}

func (h *handler[T, P]) handle(ctx context.Context, request *admission.Request) admission.Response {
	view := h.cluster.For(ctx)
	result, err := h.evaluate(view, request)
	if err != nil {
		countFailure(h.kind)
		return admission.Errored(http.StatusBadRequest, err)
	}
	if err := view.Err(); err != nil {
		countFailure(h.kind)
		log.FromContext(ctx).Error(err, "reading from a cache")
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("reading the management cluster, %w", err))
	}
	count(h.kind, result)
	return responseOf(request, result)
}

// evaluate applies the rules to the object of the request. It returns an error if the request cannot be decoded.
func (h *handler[T, P]) evaluate(view rules.Cluster, request *admission.Request) (rules.Result, error) {
	var before, after P
	var err error
	switch request.Operation {
	case admissionv1.Create, admissionv1.Update:
		if after, err = decode[T, P](request.Object); err != nil {
			return rules.Result{}, err
		}
		if !after.GetDeletionTimestamp().IsZero() {
			return rules.Result{}, nil // its finalizers must be removable, whatever else is wrong
		}
	case admissionv1.Delete:
		if h.deleted != nil {
			return h.deleted(view, request.Name), nil
		}
		return rules.Result{}, nil
	default:
		return rules.Result{}, nil
	}
	if request.Operation == admissionv1.Update {
		if before, err = decode[T, P](request.OldObject); err != nil {
			return rules.Result{}, err
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

// responseOf returns the response of the API server's own validation: the status of an invalid object, of which kubectl
// shows each field on a line of its own.
func responseOf(request *admission.Request, result rules.Result) admission.Response {
	response := admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: result.Allowed(), Warnings: result.Warnings}}
	if result.Allowed() {
		return response
	}
	resource := schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}
	refusal := apierrors.NewForbidden(resource, request.Name, errors.New(result.Refusal))
	if len(result.Errors) > 0 {
		kind := schema.GroupKind{Group: request.Kind.Group, Kind: request.Kind.Kind}
		refusal = apierrors.NewInvalid(kind, cmp.Or(request.Name, "(name to be generated)"), result.Errors)
	}
	status := refusal.Status()
	response.Result = &status
	return response
}
