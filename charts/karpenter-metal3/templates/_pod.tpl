{{/* What all pods have, but for their containers: a dict of root and component. */}}
{{- define "karpenter-metal3.pod" -}}
{{- $root := .root -}}
serviceAccountName: {{ include "karpenter-metal3.account" . }}
enableServiceLinks: false
{{- $secrets := $root.Values.imagePullSecrets -}}
{{- range $root.Values.image.pullSecrets -}}
{{- $secrets = append $secrets (dict "name" .) -}}
{{- end }}
{{- with $secrets }}
imagePullSecrets:
  {{- toYaml (uniq .) | nindent 2 }}
{{- end }}
{{- $priority := (index $root.Values .component).priorityClassName -}}
{{- with ternary $root.Values.priorityClassName $priority (kindIs "invalid" $priority) }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- $context := . }}
{{- if $root.Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range $root.Values.topologySpreadConstraints }}
  {{- $selector := dict "matchLabels" (fromYaml (include "karpenter-metal3.selector" $context)) }}
  - {{- toYaml (ternary . (set (deepCopy .) "labelSelector" $selector) (hasKey . "labelSelector")) | nindent 4 }}
  {{- end }}
{{- else if $root.Values.spreadReplicas }}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "karpenter-metal3.selector" $context | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}
{{- with $root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "karpenter-metal3.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
privileged: false
capabilities:
  drop: [ALL]
{{- end }}

{{- define "karpenter-metal3.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* Labels of the pods of a component: a dict of root and component. */}}
{{- define "karpenter-metal3.podLabels" -}}
{{- toYaml (merge (deepCopy .root.Values.podLabels) (fromYaml (include "karpenter-metal3.labels" .))) -}}
{{- end }}

{{/* Environment variables of all. Go collects garbage more often when its memory comes near the limit of the container, or what
the node has for pods if there is none. */}}
{{- define "karpenter-metal3.env" -}}
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

{{/* Flags that manager and webhook have. */}}
{{- define "karpenter-metal3.args" -}}
- --metrics-bind-address=:8080
- --metrics-secure={{ .Values.metrics.secure }}
{{ include "karpenter-metal3.sharedArgs" . }}
{{- end }}

{{/* Flags that all have. */}}
{{- define "karpenter-metal3.sharedArgs" -}}
- --logging-format={{ .Values.logging.format }}
- --v={{ get (dict "info" 0 "debug" 2) .Values.logLevel | default .Values.logging.verbosity }}
- --health-probe-bind-address=:8081
{{- with .Values.topologyLabels }}
- --topology-labels={{ join "," . }}
{{- end }}
{{- end }}
