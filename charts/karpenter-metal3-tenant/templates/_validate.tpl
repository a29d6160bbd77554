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
{{- fail "provider.featureGates is set and controllers does not have karpenter: the gates are of that controller and would have no effect. Leave them out, or add karpenter." -}}
{{- end -}}
{{- $set := list "namespace" "tenant-cluster" "controllers" "tenant-kubeconfig" "tenant-kube-context" "management-kubeconfig" "management-kube-context" "leader-elect" "logging-format" "v" "metrics-bind-address" "health-probe-bind-address" "topology-labels" "trusted-users" "feature-gates" "scheduler-config" -}}
{{- range .Values.provider.extraArgs -}}
{{- $flag := regexFind "^--?[^=]+" . | trimPrefix "--" | trimPrefix "-" -}}
{{- if has $flag $set -}}
{{- fail (printf "provider.extraArgs has %s: the chart sets --%s itself, and ports, rights and Secrets depend on it. Use the value for it, or leave it out." . $flag) -}}
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
{{- if has .name (list "tenant") -}}
{{- fail (printf "extraVolumes has %s: the chart has a volume of that name. Give yours another one." .name) -}}
{{- end -}}
{{- if has .name $volumes -}}
{{- fail (printf "extraVolumes has %s twice: the API server would refuse the pods. Leave one out." .name) -}}
{{- end -}}
{{- $volumes = append $volumes .name -}}
{{- end -}}
{{- $paths := list "/tenant" "/var/run/secrets/kubernetes.io/serviceaccount" -}}
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
{{- range $key, $_ := .Values.provider.podLabels -}}
{{- if has $key (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/managed-by" "helm.sh/chart") -}}
{{- fail (printf "provider.podLabels has %s: selectors and Helm depend on that label, and the chart sets it itself. Leave it out." $key) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.provider.image (or .Values.image.repository .Values.image.digest) -}}
{{- fail "provider.image and image.repository or image.digest are set: each names the image, and only one can be pulled. Leave one out." -}}
{{- end -}}
{{- with .Values.serviceAccount -}}
{{- if and (not .create) (not .name) -}}
{{- fail "serviceAccount.create is false and serviceAccount.name is empty: the provider's rights would not be bound. Name an account of the release's namespace." -}}
{{- end -}}
{{- if and .name (not (regexMatch "^karpenter-metal3-provider(-.*)?$" .name)) -}}
{{- fail (printf "serviceAccount.name is %s: the admission policies of the management cluster know providers by names that begin with karpenter-metal3-provider-, and would not hold for it. Choose such a name." .name) -}}
{{- end -}}
{{- if and (not .create) (or .annotations $.Values.provider.serviceAccount.annotations) -}}
{{- fail "serviceAccount.create is false and the account is given annotations: the chart does not write it. Annotate the account itself, or leave them out." -}}
{{- end -}}
{{- end -}}
{{- end }}
