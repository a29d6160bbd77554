{{/* Names in the management cluster end in the TenantCluster's: several may be in one namespace. */}}

{{- define "karpenter-metal3-tenant.cluster" -}}
{{ .Values.tenantCluster | default .Release.Name }}
{{- end }}

{{- define "karpenter-metal3-tenant.name" -}}
{{- $name := printf "karpenter-metal3-provider-%s" (include "karpenter-metal3-tenant.cluster" .) -}}
{{- if gt (len $name) 63 -}}
{{- $name = printf "%s-%s" (trunc 54 $name | trimSuffix "-" | trimSuffix ".") (sha256sum $name | trunc 8) -}}
{{- end -}}
{{- $name -}}
{{- end }}

{{- define "karpenter-metal3-tenant.selector" -}}
app.kubernetes.io/name: karpenter-metal3-tenant
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: provider
{{- end }}

{{- define "karpenter-metal3-tenant.labels" -}}
app.kubernetes.io/name: karpenter-metal3-tenant
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "karpenter-metal3-tenant.image" -}}
{{- .Values.provider.image | default (printf "%s/provider:%s" (trimSuffix "/" .Values.image.registry) (.Values.image.tag | default .Chart.AppVersion)) -}}
{{- end }}
