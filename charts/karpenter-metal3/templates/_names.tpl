{{/*
What belongs to the pods has a name that values can change. The webhook's configuration, definitions, policies and ClusterRoles are the
cluster's, and the lease and the Secret with the certificates are found by their names: those are fixed, so there is one release.
*/}}
{{- define "karpenter-metal3.fullname" -}}
{{ .Values.fullnameOverride | default .Values.nameOverride | default .Chart.Name }}
{{- end }}

{{/* account is the name of a component's ServiceAccount: a dict of root and component. The charts of the tenants and the policies know it. */}}
{{- define "karpenter-metal3.account" -}}
{{ ((index .root.Values .component).serviceAccount | default dict).name | default (printf "karpenter-metal3-%s" .component) }}
{{- end }}

{{- define "karpenter-metal3.managerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "karpenter-metal3.account" (dict "root" . "component" "manager") }}
{{- end }}

{{/* labels of an object: a dict of root and component. Those that a selector or Helm looks at are the chart's. */}}
{{- define "karpenter-metal3.labels" -}}
{{- $root := .root -}}
{{- $fixed := fromYaml (include "karpenter-metal3.selector" .) -}}
{{- $_ := set $fixed "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $fixed "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- $others := dict "app.kubernetes.io/part-of" "karpenter-metal3" "app.kubernetes.io/version" ($root.Chart.AppVersion | replace "+" "_") -}}
{{- toYaml (merge $fixed $root.Values.additionalLabels $others) -}}
{{- end }}

{{/* selector of the pods of one component: a dict of root and component. It cannot be changed once it is installed. */}}
{{- define "karpenter-metal3.selector" -}}
app.kubernetes.io/name: {{ .root.Values.nameOverride | default .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "karpenter-metal3.image" -}}
{{- $image := .root.Values.image -}}
{{- $own := (index .root.Values .component).image | default dict -}}
{{- if kindIs "string" $own -}}
{{- $own -}}
{{- else -}}
{{- $repository := $own.repository | default (printf "%s/%s" (trimSuffix "/" $image.registry) .component) -}}
{{- ternary (printf "%s@%s" $repository $own.digest) (printf "%s:%s" $repository ($own.tag | default $image.tag | default .root.Chart.AppVersion)) (not (empty $own.digest)) -}}
{{- end -}}
{{- end }}

{{/* celList writes a list of names in CEL. The schema lets no quote and no backslash through. */}}
{{- define "karpenter-metal3.celList" -}}
{{- if . -}}
['{{ join "', '" . }}']
{{- else -}}
[]
{{- end -}}
{{- end }}

{{/* renamed is the manager's account with a name of its own, and the name that the policies know it by, in CEL. */}}
{{- define "karpenter-metal3.renamed" -}}
{{- $account := include "karpenter-metal3.account" (dict "root" . "component" "manager") -}}
{ {{- if ne $account "karpenter-metal3-manager" -}} '{{ include "karpenter-metal3.managerUser" . }}': 'karpenter-metal3-manager' {{- end -}} }
{{- end }}
