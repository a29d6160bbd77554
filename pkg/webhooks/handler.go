// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks validates writes to the management cluster, and gives the claims of tenants' pods their names there.
// It decodes admission requests, applies pkg/webhooks/rules, and encodes the result. It writes nothing, so a dry run is
// like any other request.
package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/rules"
)

// handler answers requests about one kind.
type handler[T any, P cluster.Object[T]] struct {
	kind    string
	shape   *shape
	cluster *cluster.Cluster
	// written validates an object that is created or updated. before is nil for a new object.
	written func(cluster rules.Cluster, before, after P) rules.Result
	// deleted validates the deletion of an object. Nil allows every deletion.
	deleted func(cluster rules.Cluster, object P) rules.Result
}

// Handle implements admission.Handler.
func (h *handler[T, P]) Handle(ctx context.Context, request admission.Request) admission.Response {
	view := h.cluster.For(ctx)
	result, err := h.evaluate(view, &request)
	if err != nil {
		return failed(h.kind, http.StatusBadRequest, err)
	}
	if err := view.Err(); err != nil {
		return unread(ctx, h.kind, err)
	}
	count(h.kind, result)
	return responseOf(&request, result)
}

// failed returns the response to a request before any rule has been applied.
func failed(kind string, code int32, err error) admission.Response {
	requests.WithLabelValues(kind, string(noRule), resultFailed).Inc()
	return admission.Errored(code, err)
}

// unread returns the response for an error of a cache, or for a request whose time is over.
func unread(ctx context.Context, kind string, err error) admission.Response {
	if late := ctx.Err(); late != nil {
		return failed(kind, http.StatusServiceUnavailable, fmt.Errorf("answering in time, %w", late))
	}
	log.FromContext(ctx).Error(err, "reading from a cache")
	return failed(kind, http.StatusInternalServerError, fmt.Errorf("reading the management cluster, %w", err))
}

// evaluate applies the rules to the object of the request. It returns an error if the request cannot be decoded.
func (h *handler[T, P]) evaluate(view rules.Cluster, request *admission.Request) (rules.Result, error) {
	var before, after P
	var lacks bool
	var err error
	if request.Operation == admissionv1.Create || request.Operation == admissionv1.Update {
		after = new(T)
		if lacks, err = h.shape.decodeStrictly(request.Object.Raw, after); err != nil || !after.GetDeletionTimestamp().IsZero() {
			return rules.Result{}, err // an object being deleted must lose its finalizers, whatever else is wrong
		}
	}
	if request.Operation == admissionv1.Update || request.Operation == admissionv1.Delete && h.deleted != nil {
		before = new(T)
		if err = h.shape.decode(request.OldObject.Raw, before); err != nil {
			return rules.Result{}, err
		}
	}
	switch {
	case after != nil:
		result := h.written(view, before, after)
		if lacks {
			err = h.unknown(&result, request, after.GetName())
		}
		return result, err
	case before != nil:
		return h.deleted(view, before), nil
	}
	return rules.Result{}, nil
}

// unknown adds warnings and errors about the fields of an object that its schema does not name.
func (h *handler[T, P]) unknown(result *rules.Result, request *admission.Request, name string) error {
	var before []rules.UnknownField
	after, err := h.shape.unknown(request.Object.Raw)
	if err == nil && request.Operation == admissionv1.Update {
		before, err = h.shape.unknown(request.OldObject.Raw)
	}
	result.Add(rules.UnknownFields(rules.Kind(h.kind), name, before, after))
	return err
}

// responseOf returns a response like the API server's own validation: the status of an invalid object. kubectl shows
// each of its fields on a separate line.
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

// Values of the label result.
const (
	resultAdmitted = "admitted"
	resultWarned   = "warned"
	resultDenied   = "denied"
	resultFailed   = "failed"
	// noRule is the rule of a request that is admitted or has failed.
	noRule rules.Rule = ""
)

var (
	requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "karpenter_metal3", Subsystem: "webhook", Name: "results_total",
		Help: "Admission requests by kind, rule and result: denied and warned count once for each rule with an error or a warning; admitted " +
			"and failed have no rule.",
	}, []string{"kind", "rule", "result"})
	durations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "karpenter_metal3", Subsystem: "webhook", Name: "duration_seconds",
		Help:    "Duration of admission requests by kind and operation, in seconds.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
	}, []string{"kind", "operation"})
	refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "karpenter_metal3", Subsystem: "webhook", Name: "refused_requests_total",
		Help: "Requests that were not looked at, by reason: certificate, for a client without one that is accepted; busy, beyond the limits; " +
			"rate, for a provider that writes too much; and body, for one that cannot be read.",
	}, []string{"reason"})
)

func init() { metrics.Registry.MustRegister(requests, durations, refused) }

func count(kind string, result rules.Result) {
	if result.Allowed() {
		requests.WithLabelValues(kind, string(noRule), resultAdmitted).Inc()
	}
	for _, rule := range result.Denied {
		requests.WithLabelValues(kind, string(rule), resultDenied).Inc()
	}
	for _, rule := range result.Warned {
		requests.WithLabelValues(kind, string(rule), resultWarned).Inc()
	}
}

// timed is a handler that records the durations of requests about a kind. It begins none whose time has run out.
type timed struct {
	admission.Handler
	kind  string
	clock clock.PassiveClock
}

// operations are the operations that an API server asks about. With others, a client could create metric labels without
// end.
var operations = []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete,
	admissionv1.Connect}

// Handle implements admission.Handler.
func (t timed) Handle(ctx context.Context, request admission.Request) admission.Response {
	if err := ctx.Err(); err != nil {
		return unread(ctx, t.kind, err)
	}
	if !slices.Contains(operations, request.Operation) {
		return failed(t.kind, http.StatusBadRequest, fmt.Errorf("the operation is none of %q", operations))
	}
	begin := t.clock.Now()
	response := t.Handler.Handle(ctx, request)
	durations.WithLabelValues(t.kind, string(request.Operation)).Observe(t.clock.Since(begin).Seconds())
	return response
}

// served has the parts that handlers are made of.
type served struct {
	cluster *cluster.Cluster
	clock   clock.PassiveClock
	shapes  map[string]*shape
}

// Handlers returns the handlers by path. The paths match config/webhook.
func Handlers(all *cluster.Cluster, clk clock.PassiveClock) (map[string]admission.Handler, error) {
	shapes, err := shapes()
	if err != nil {
		return nil, fmt.Errorf("reading the definitions, %w", err)
	}
	s := served{all, clk, shapes}
	return map[string]admission.Handler{
		"/validate/nodeproviders": validate(s, rules.KindNodeProvider, rules.Ratchet(rules.NodeProvider), rules.ProviderDeleted),
		"/validate/nodetypes": validate(s, rules.KindNodeType, rules.Ratchet(rules.NodeType),
			unused[*v1alpha1.NodeType](rules.KindNodeType)),
		"/validate/machines":       validate(s, "Machine", rules.Machine, nil),
		"/validate/tenantclusters": validate(s, rules.KindTenantCluster, rules.Ratchet(rules.TenantCluster), rules.TenantDeleted),
		"/validate/nodeprofiles": validate(s, rules.KindNodeProfile, rules.Ratchet(rules.NodeProfile),
			unused[*v1alpha1.NodeProfile](rules.KindNodeProfile)),
		"/validate/osimages": validate(s, rules.KindOSImage, rules.Ratchet(rules.OSImage), unused[*v1alpha1.OSImage](rules.KindOSImage)),
		"/validate/sshkeys":  validate(s, rules.KindSSHKey, rules.Ratchet(rules.SSHKey), unused[*v1alpha1.SSHKey](rules.KindSSHKey)),
		"/validate/machineconfigtemplates": validate(s, rules.KindMachineConfigTemplate, rules.Ratchet(rules.MachineConfigTemplate),
			unused[*v1alpha1.MachineConfigTemplate](rules.KindMachineConfigTemplate)),
		"/validate/writes": timed{&writesHandler{clock: clk, accounts: map[account]*rate.Limiter{}}, writesKind, clk},
		"/mutate/pods":     timed{&podHandler{cluster: all}, podKind, clk},
		"/mutate/spelling": timed{spellingHandler{}, spellingKind, clk},
	}, nil
}

func validate[T any, P cluster.Object[T]](s served, kind rules.Kind,
	written func(cluster rules.Cluster, before, after P) rules.Result, deleted func(cluster rules.Cluster, object P) rules.Result,
) admission.Handler {
	return timed{&handler[T, P]{kind: string(kind), shape: cmp.Or(s.shapes[string(kind)], anything), cluster: s.cluster,
		written: written, deleted: deleted}, string(kind), s.clock}
}

func unused[P client.Object](kind rules.Kind) func(rules.Cluster, P) rules.Result {
	return func(cluster rules.Cluster, object P) rules.Result {
		return rules.Deleted(cluster, kind, object.GetName())
	}
}

// spellingKind is the kind in the metrics of spellingHandler.
const spellingKind = "spelling"

// spellingHandler answers requests about objects in which the reference writes a field in another form than the schema
// has. It needs no cache and denies nothing: it leaves unknown fields to the schema.
type spellingHandler struct{}

// Handle implements admission.Handler.
func (spellingHandler) Handle(_ context.Context, request admission.Request) admission.Response {
	object := map[string]any{}
	if err := anything.decode(request.Object.Raw, &object); err != nil {
		return failed(spellingKind, http.StatusBadRequest, err)
	}
	result, patches := rules.Spelling(rules.Kind(request.Kind.Kind), object)
	count(spellingKind, result)
	response := responseOf(&request, result)
	response.Patches = patches
	return response
}
