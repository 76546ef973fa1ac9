{{- /* Where the gateway, its doctor and its ingestion go. */ -}}
{{- define "knowledge.gatewayEgress" -}}
{{ include "knowledge.egressOpensearch" . }}
{{ include "knowledge.egressSibling" (dict "root" . "name" "embedding") }}
{{ include "knowledge.egressSibling" (dict "root" . "name" "reranker") }}
{{ if .Values.auth.jwksUrl }}{{ include "knowledge.egressOutside" . }}{{ end }}
{{- end -}}
