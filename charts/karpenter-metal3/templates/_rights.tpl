{{/*
The objects of a file of config/rbac, for the service account of a component: a dict of root, file and component. Rules are taken as they are;
`without` may name kinds that are left out, and API groups whose rules are.
*/}}
{{- define "karpenter-metal3.rights" -}}
{{- $root := .root -}}
{{- $without := .without | default list -}}
{{- $context := dict "root" .root "component" .component -}}
{{- range regexSplit "(?m)^---\\s*$" ($root.Files.Get (printf "files/generated/rbac/%s" .file)) -1 -}}
{{- $object := fromYaml . -}}
{{- if not (has (printf "%s/%s" $object.kind $object.metadata.name) $without) -}}
{{- $_ := set $object.metadata "labels" (fromYaml (include "karpenter-metal3.labels" $context)) -}}
{{- if hasKey $object.metadata "namespace" -}}
{{- $_ := set $object.metadata "namespace" $root.Release.Namespace -}}
{{- end -}}
{{- if hasKey $object "subjects" -}}
{{- $_ := set $object "subjects" (list (dict "kind" "ServiceAccount" "name" (include "karpenter-metal3.account" $context) "namespace" $root.Release.Namespace)) -}}
{{- end -}}
{{- if hasKey $object "rules" -}}
{{- $rules := list -}}
{{- range $object.rules -}}
{{- if not (has (first .apiGroups) $without) -}}
{{- $rules = append $rules . -}}
{{- end -}}
{{- end -}}
{{- $_ := set $object "rules" $rules -}}
{{- end }}
---
{{ toYaml $object }}
{{ end -}}
{{- end -}}
{{- end }}
