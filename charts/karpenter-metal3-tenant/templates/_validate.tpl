{{/* Values that the schema lets through one by one, and that cannot work together. */}}
{{- define "karpenter-metal3-tenant.validate" -}}
{{- with .Values.kubeconfig -}}
{{- if and .inCluster (or .secretName .context) -}}
{{- fail "kubeconfig.inCluster is true and kubeconfig.secretName or kubeconfig.context is set: in one cluster there is no kubeconfig to read. Leave them out, or set inCluster to false." -}}
{{- end -}}
{{- end -}}
{{- with .Values.access -}}
{{- if and .createServiceAccount .subject -}}
{{- fail "access.createServiceAccount is true and access.subject is set: the provider can be only one of them. Set createServiceAccount to false, or leave the subject out." -}}
{{- end -}}
{{- if and (not .createServiceAccount) (not .subject) -}}
{{- fail "access.createServiceAccount is false and access.subject is empty: the provider's rights would not be bound. Name the user or service account of its kubeconfig." -}}
{{- end -}}
{{- with .subject -}}
{{- if and (eq .kind "ServiceAccount") (not .namespace) -}}
{{- fail (printf "access.subject is the ServiceAccount %s without a namespace: service accounts have one." .name) -}}
{{- end -}}
{{- if and (eq .kind "User") .namespace -}}
{{- fail (printf "access.subject is the User %s with a namespace: users have none. Leave it out, or set kind to ServiceAccount." .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.provider.featureGates (not (has "karpenter" .Values.controllers)) -}}
{{- fail "provider.featureGates is set and controllers does not have karpenter: the gates are Karpenter's and would have no effect. Leave them out, or add karpenter." -}}
{{- end -}}
{{- $set := list "namespace" "tenant-cluster" "controllers" "tenant-kubeconfig" "tenant-kube-context" "management-kubeconfig" "management-kube-context" "leader-elect" "logging-format" "v" "metrics-bind-address" "health-probe-bind-address" "topology-labels" "capacity-type" "trusted-users" "feature-gates" -}}
{{- range .Values.provider.extraArgs -}}
{{- $flag := regexFind "^--?[^=]+" . | trimPrefix "--" | trimPrefix "-" -}}
{{- if has $flag $set -}}
{{- fail (printf "provider.extraArgs has %s: the chart sets --%s itself, and ports, rights and Secrets depend on it. Use the value for it, or leave it out." . $flag) -}}
{{- end -}}
{{- end -}}
{{- end }}
