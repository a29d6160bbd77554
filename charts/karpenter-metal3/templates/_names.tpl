{{/* Names are fixed: the webhook's configuration and the definitions are the cluster's, so there is one release. */}}

{{- define "karpenter-metal3.labels" -}}
app.kubernetes.io/name: karpenter-metal3
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* selector of the pods of one component: a dict of root and component. */}}
{{- define "karpenter-metal3.selector" -}}
app.kubernetes.io/name: karpenter-metal3
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "karpenter-metal3.image" -}}
{{- $own := (index .root.Values .component).image -}}
{{- $own | default (printf "%s/%s:%s" (trimSuffix "/" .root.Values.image.registry) .component (.root.Values.image.tag | default .root.Chart.AppVersion)) -}}
{{- end }}

{{/* celList writes a list of names in CEL. The schema lets no quote and no backslash through. */}}
{{- define "karpenter-metal3.celList" -}}
{{- if . -}}
['{{ join "', '" . }}']
{{- else -}}
[]
{{- end -}}
{{- end }}
