{{/* Names in the management cluster end in the TenantCluster's: several may be in one namespace. */}}

{{- define "karpenter-metal3-tenant.cluster" -}}
{{ .Values.tenantCluster | default .Release.Name }}
{{- end }}

{{/* What belongs to the pods has a name that values can change. */}}
{{- define "karpenter-metal3-tenant.fullname" -}}
{{- .Values.fullnameOverride | default (include "karpenter-metal3-tenant.named" (dict "root" . "name" .Values.nameOverride)) -}}
{{- end }}

{{/* account is the name of the ServiceAccount in the management cluster, whose policies know what it begins with. */}}
{{- define "karpenter-metal3-tenant.account" -}}
{{- .Values.serviceAccount.name | default (include "karpenter-metal3-tenant.named" (dict "root" . "name" "")) -}}
{{- end }}

{{/* named is a name with that of the TenantCluster: a dict of root and name. */}}
{{- define "karpenter-metal3-tenant.named" -}}
{{- include "karpenter-metal3-tenant.short" (printf "%s-%s" (.name | default "karpenter-metal3-provider") (include "karpenter-metal3-tenant.cluster" .root)) -}}
{{- end }}

{{/* service is the name of the Service, which has no dots. */}}
{{- define "karpenter-metal3-tenant.service" -}}
{{- include "karpenter-metal3-tenant.short" (printf "%s-metrics" (include "karpenter-metal3-tenant.fullname" . | replace "." "-")) -}}
{{- end }}

{{/* short is a name as labels and Services can have it. */}}
{{- define "karpenter-metal3-tenant.short" -}}
{{- if gt (len .) 63 -}}
{{- printf "%s-%s" (trunc 54 . | trimSuffix "-" | trimSuffix ".") (sha256sum . | trunc 8) -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end }}

{{/* selector of the pods. It cannot be changed once it is installed. */}}
{{- define "karpenter-metal3-tenant.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: provider
{{- end }}

{{/* labels of an object: a dict of root and component. Those that a selector or Helm looks at are the chart's. */}}
{{- define "karpenter-metal3-tenant.labels" -}}
{{- $root := .root -}}
{{- $fixed := set (fromYaml (include "karpenter-metal3-tenant.selector" $root)) "app.kubernetes.io/component" .component -}}
{{- $_ := set $fixed "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $fixed "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- $others := dict "app.kubernetes.io/part-of" "karpenter-metal3" "app.kubernetes.io/version" ($root.Chart.AppVersion | replace "+" "_") -}}
{{- toYaml (merge $fixed $root.Values.additionalLabels $others) -}}
{{- end }}

{{- define "karpenter-metal3-tenant.image" -}}
{{- $image := .Values.image -}}
{{- $repository := $image.repository | default (printf "%s/provider" (trimSuffix "/" $image.registry)) -}}
{{- $reference := ternary (printf "%s@%s" $repository $image.digest) (printf "%s:%s" $repository ($image.tag | default .Chart.AppVersion)) (not (empty $image.digest)) -}}
{{- .Values.provider.image | default $reference -}}
{{- end }}

{{/* Environment variables of the provider. Go collects garbage more often when its memory comes near the limit of the container, or what
the node has for pods if there is none. */}}
{{- define "karpenter-metal3-tenant.env" -}}
{{- $variables := list -}}
{{- range .Values.extraEnv -}}
{{- $variables = append $variables .name -}}
{{- end }}
{{- if not (has "GOMEMLIMIT" $variables) }}
- name: GOMEMLIMIT
  valueFrom:
    resourceFieldRef: {resource: limits.memory, divisor: "1"}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
