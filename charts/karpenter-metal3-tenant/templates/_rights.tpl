{{/*
The objects of a file of config/rbac, for one subject: a dict of root, file, subject, rename, and kinds that are left out
(without). Rules are taken as they are, but `policies` are the names of the policies that may be updated. With rename, names get the TenantCluster's, and namespaces are the release's.
*/}}
{{- define "karpenter-metal3-tenant.rights" -}}
{{- $ := . -}}
{{- $cluster := include "karpenter-metal3-tenant.cluster" .root -}}
{{- $text := .root.Files.Get (printf "files/generated/rbac/%s" .file) | replace `{{ .Namespace }}` .root.Release.Namespace -}}
{{- range regexSplit "(?m)^---\\s*$" $text -1 -}}
{{- $object := fromYaml . -}}
{{- if not (has $object.kind ($.without | default list)) -}}
{{- $_ := set $object.metadata "labels" (fromYaml (include "karpenter-metal3-tenant.labels" (dict "root" $.root "component" "provider"))) -}}
{{- if hasKey $object "subjects" -}}
{{- $_ := set $object "subjects" (list $.subject) -}}
{{- end -}}
{{- /* Which policies may be updated depends on the TenantCluster. */ -}}
{{- if and $.policies (hasKey $object "rules") -}}
{{- range $object.rules -}}
{{- if and (has "validatingadmissionpolicies" .resources) (has "update" .verbs) (not .resourceNames) -}}
{{- $_ := set . "resourceNames" $.policies -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $.rename -}}
{{- $separator := ternary ":" "-" (eq $object.kind "ClusterRoleBinding") -}}
{{- $_ := set $object.metadata "name" (printf "%s%s%s" $object.metadata.name $separator $cluster) -}}
{{- if eq $object.kind "RoleBinding" -}}
{{- $_ := set $object.roleRef "name" (printf "%s-%s" $object.roleRef.name $cluster) -}}
{{- end -}}
{{- end }}
---
{{ toYaml $object }}
{{ end -}}
{{- end -}}
{{- end }}
