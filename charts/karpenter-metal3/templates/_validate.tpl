{{/* Values that the schema lets through one by one, and that cannot work together. */}}
{{- define "karpenter-metal3.validate" -}}
{{- $certificates := .Values.webhook.certificates -}}
{{- if and (ne $certificates.source "certManager") $certificates.certManager.issuerRef -}}
{{- fail "webhook.certificates.certManager.issuerRef is set and webhook.certificates.source is self: the issuer would not be used. Set the source to certManager, or leave the issuer out." -}}
{{- end -}}
{{- if and (not .Values.webhook.enabled) (eq $certificates.source "certManager") -}}
{{- fail "webhook.enabled is false and webhook.certificates.source is certManager: there is no webhook for a certificate. Enable the webhook, or leave the source at self." -}}
{{- end -}}
{{- with $certificates.certManager.issuerRef -}}
{{- if not .name -}}
{{- fail "webhook.certificates.certManager.issuerRef has no name: name an Issuer of the release's namespace, or a ClusterIssuer with kind: ClusterIssuer." -}}
{{- end -}}
{{- end -}}
{{- if le (int .Values.webhook.terminationGracePeriodSeconds) (int .Values.webhook.shutdownDelaySeconds) -}}
{{- fail (printf "webhook.shutdownDelaySeconds is %d and webhook.terminationGracePeriodSeconds is %d: kubelet would kill the webhook while it still answers, and writes would fail. Make the second longer than the first." (int .Values.webhook.shutdownDelaySeconds) (int .Values.webhook.terminationGracePeriodSeconds)) -}}
{{- end -}}
{{- if not .Values.manager.hostNamespaces -}}
{{- fail "manager.hostNamespaces is empty: the manager could write no user data, and no server could be installed. Name the namespaces of the BareMetalHosts." -}}
{{- end -}}
{{- if and .Values.webhook.clients.names (not .Values.webhook.clients.caConfigMap) -}}
{{- fail "webhook.clients.names is set and webhook.clients.caConfigMap is not: the names of certificates mean nothing without their authority. Set it, or leave the names out." -}}
{{- end -}}
{{- if and .Values.manager.networkEndpointSecret (not (hasPrefix "https://" .Values.manager.networkEndpoint)) -}}
{{- fail (printf "manager.networkEndpointSecret is set and manager.networkEndpoint is %q: credentials are sent to an https URL only. Set one, or leave the Secret out." .Values.manager.networkEndpoint) -}}
{{- end -}}
{{- if has .Release.Namespace .Values.manager.hostNamespaces -}}
{{- fail (printf "manager.hostNamespaces has %s, the namespace of the release: a user with access to the Secrets of servers could read the webhook's key. Install the release in a namespace of its own." .Release.Namespace) -}}
{{- end -}}
{{- $set := list "leader-elect" "leader-election-namespace" "logging-format" "v" "metrics-bind-address" "metrics-secure" "health-probe-bind-address" "topology-labels" "network-endpoint" "network-endpoint-credentials" "provisioning-deadline" "webhook-bind-address" "cert-rotation" "cert-dir" "cert-names" "namespace" "service" "cert-secret" "configuration" "shutdown-delay" "client-ca-file" "client-names" -}}
{{- range $component := list "manager" "webhook" -}}
{{- range (index $.Values $component).extraArgs -}}
{{- $flag := regexFind "^--?[^=]+" . | trimPrefix "--" | trimPrefix "-" -}}
{{- if has $flag $set -}}
{{- fail (printf "%s.extraArgs has %s: the chart sets --%s itself, and ports, rights and Services depend on it. Use the value for it, or leave it out." $component . $flag) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
{{- define "karpenter-metal3.managerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:karpenter-metal3-manager
{{- end }}
