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
{{- $set := list "leader-elect" "leader-election-namespace" "logging-format" "v" "metrics-bind-address" "metrics-secure" "health-probe-bind-address" "topology-labels" "network-endpoint" "network-endpoint-credentials" "provisioning-deadline" "webhook-bind-address" "cert-rotation" "cert-dir" "namespace" "cert-secret" "webhook-cert-rotation" "webhook-namespace" "webhook-service" "webhook-cert-secret" "webhook-cert-names" "webhook-configuration" "shutdown-delay" "client-ca-file" "client-names" "page-bind-address" "server" "certificate-authority" "max-readers" -}}
{{- range $component := list "manager" "webhook" -}}
{{- range (index $.Values $component).extraArgs -}}
{{- $flag := regexFind "^--?[^=]+" . | trimPrefix "--" | trimPrefix "-" -}}
{{- if has $flag $set -}}
{{- fail (printf "%s.extraArgs has %s: the chart sets --%s itself, and ports, rights and Services depend on it. Use the value for it, or leave it out." $component . $flag) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.logLevel .Values.logging.verbosity -}}
{{- fail (printf "logLevel is %s and logging.verbosity is %d: both say how much is logged. Set one of them." .Values.logLevel (int .Values.logging.verbosity)) -}}
{{- end -}}
{{- range $value := list "additionalLabels" "podLabels" -}}
{{- range $key, $_ := index $.Values $value -}}
{{- if has $key (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/managed-by" "helm.sh/chart") -}}
{{- fail (printf "%s has %s: selectors and Helm depend on that label, and the chart sets it itself. Leave it out." $value $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $variables := list -}}
{{- range .Values.extraEnv -}}
{{- $flag := trimPrefix "KARPENTER_METAL3_" .name | lower | replace "_" "-" -}}
{{- if and (hasPrefix "KARPENTER_METAL3_" .name) (has $flag $set) -}}
{{- fail (printf "extraEnv has %s, which stands in for --%s: the chart sets that flag itself, and ports, rights and Secrets depend on it. Use the value for it, or leave it out." .name $flag) -}}
{{- end -}}
{{- if has .name $variables -}}
{{- fail (printf "extraEnv has %s twice: only one of them would be seen. Leave the other out." .name) -}}
{{- end -}}
{{- $variables = append $variables .name -}}
{{- end -}}
{{- $volumes := list -}}
{{- range .Values.extraVolumes -}}
{{- if has .name (list "network-endpoint" "certificates" "clients" "cluster") -}}
{{- fail (printf "extraVolumes has %s: the chart has a volume of that name. Give yours another one." .name) -}}
{{- end -}}
{{- if has .name $volumes -}}
{{- fail (printf "extraVolumes has %s twice: the API server would refuse the pods. Leave one out." .name) -}}
{{- end -}}
{{- $volumes = append $volumes .name -}}
{{- end -}}
{{- $paths := list "/network-endpoint" "/certificates" "/clients" "/cluster" "/var/run/secrets/kubernetes.io/serviceaccount" -}}
{{- range .Values.extraVolumeMounts -}}
{{- if not (has .name $volumes) -}}
{{- fail (printf "extraVolumeMounts has %s, which extraVolumes has not: the API server would refuse the pods. Add the volume, or leave the mount out." .name) -}}
{{- end -}}
{{- $path := clean .mountPath -}}
{{- if has $path $paths -}}
{{- fail (printf "extraVolumeMounts has %s: another volume is mounted there. Choose another path." .mountPath) -}}
{{- end -}}
{{- $paths = append $paths $path -}}
{{- end -}}
{{- $accounts := list -}}
{{- range $component := list "manager" "webhook" -}}
{{- $account := (index $.Values $component).serviceAccount -}}
{{- if and (not $account.create) (not $account.name) -}}
{{- fail (printf "%s.serviceAccount.create is false and %s.serviceAccount.name is empty: its rights would not be bound. Name an account of the release's namespace." $component $component) -}}
{{- end -}}
{{- if and (not $account.create) $account.annotations -}}
{{- fail (printf "%s.serviceAccount.create is false and the account is given annotations: the chart does not write it. Annotate the account itself, or leave them out." $component) -}}
{{- end -}}
{{- $accounts = append $accounts (include "karpenter-metal3.account" (dict "root" $ "component" $component)) -}}
{{- end -}}
{{- if eq (first $accounts) (last $accounts) -}}
{{- fail (printf "manager.serviceAccount.name and webhook.serviceAccount.name are both %s: the webhook would have the rights of the manager. Give each its own." (first $accounts)) -}}
{{- end -}}
{{- end }}
