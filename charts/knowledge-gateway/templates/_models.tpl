{{- /* {root, name, deadline}: a model service: its model files come with the image, or lie on the volume that the fetch Job fills. */ -}}
{{- define "knowledge.modelService" -}}
{{- $values := .root.Values -}}
{{- $volumes := list -}}
{{- $mounts := list -}}
{{- if eq $values.models.source "volume" -}}
{{- $volumes = list (dict "name" "models" "persistentVolumeClaim" (dict "claimName" (include "knowledge.modelsClaim" .root))) -}}
{{- $mounts = list (dict "name" "models" "mountPath" "/models") -}}
{{- end -}}
{{- $env := "" -}}
{{- if and (eq .name "reranker") $values.reranker.existingSecret -}}
{{- $env = printf "- name: RERANK_API_KEY\n  valueFrom: {secretKeyRef: {name: %s, key: %s}}" $values.reranker.existingSecret $values.reranker.secretKey -}}
{{- end -}}
{{- $callers := list -}}
{{- range (eq .name "embedding" | ternary (list "gateway" "ingest" "doctor") (list "gateway" "doctor")) -}}
{{- $callers = append $callers (include "knowledge.peer" (dict "root" $.root "name" .) | fromYaml) -}}
{{- end -}}
{{- include "knowledge.workload" (dict
  "root" .root "name" .name "config" (dict "MODEL_CACHE_DIR" "/models")
  "env" $env "volumes" $volumes "mounts" $mounts
  "grace" (add (float64 .deadline | ceil | int) 10)
  "startupPath" "/ready"
  "callers" $callers "egress" ""
) -}}
{{- end -}}
