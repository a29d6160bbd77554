{{/* What all pods have, but for their containers: a dict of root and component. */}}
{{- define "karpenter-metal3.pod" -}}
{{- $root := .root -}}
serviceAccountName: karpenter-metal3-{{ .component }}
enableServiceLinks: false
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with (index $root.Values .component).priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- if $root.Values.spreadReplicas }}
topologySpreadConstraints:
  {{- $context := . }}
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

{{/* Flags that both have. */}}
{{- define "karpenter-metal3.args" -}}
- --logging-format={{ .Values.logging.format }}
- --v={{ .Values.logging.verbosity }}
- --metrics-bind-address=:8080
- --metrics-secure={{ .Values.metrics.secure }}
- --health-probe-bind-address=:8081
{{- with .Values.topologyLabels }}
- --topology-labels={{ join "," . }}
{{- end }}
{{- end }}
