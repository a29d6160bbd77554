// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/rules"
)

// spellingHandler answers requests about objects in which the reference writes a field in another form than the schema has. It needs no
// cache and denies nothing: what it does not know is left to the schema.
type spellingHandler struct{}

// Handle implements admission.Handler.
func (spellingHandler) Handle(_ context.Context, request admission.Request) admission.Response {
	object := map[string]any{}
	if err := json.Unmarshal(request.Object.Raw, &object); err != nil {
		return failed(request.Kind.Kind, http.StatusBadRequest, fmt.Errorf("reading the object, %w", err))
	}
	result, patches := rules.Spelling(rules.Kind(request.Kind.Kind), object)
	count(request.Kind.Kind, result)
	response := responseOf(&request, result)
	response.Patches = patches
	return response
}
