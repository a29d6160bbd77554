// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package packing

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"
)

// YAML returns the configuration as kube-scheduler reads it with --config. What is not set is left out, so that the
// scheduler's defaults apply and a reader sees only what differs from them.
func YAML(configuration *configv1.KubeSchedulerConfiguration) ([]byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(configuration)
	if err != nil {
		return nil, fmt.Errorf("encoding the scheduler configuration, %w", err)
	}
	written, err := yaml.Marshal(withoutUnset(content))
	if err != nil {
		return nil, fmt.Errorf("writing the scheduler configuration, %w", err)
	}
	return written, nil
}

// withoutUnset leaves out what the types write although nobody has set it: nulls, and zeroes and empty texts in structs
// that are no pointers. Nothing in a scheduler configuration of ours is zero on purpose.
func withoutUnset(value any) any {
	switch typed := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, inner := range typed {
			if inner = withoutUnset(inner); inner != nil {
				kept[key] = inner
			}
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	case []any:
		kept := make([]any, 0, len(typed))
		for _, inner := range typed {
			if inner = withoutUnset(inner); inner != nil {
				kept = append(kept, inner)
			}
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	case string:
		if typed == "" || typed == "0s" {
			return nil
		}
	case int64:
		if typed == 0 {
			return nil
		}
	case float64:
		if typed == 0 {
			return nil
		}
	}
	return value
}
