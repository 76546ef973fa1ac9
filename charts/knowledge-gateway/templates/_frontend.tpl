{{- define "knowledge.gatewayUrl" -}}
http://{{ include "knowledge.objectName" (dict "root" . "suffix" "gateway") }}:{{ .Values.gateway.service.port }}
{{- end -}}

{{- /* Secrets by reference. In development personas are signed with the gateway's own; in production the frontend never sees it. */ -}}
{{- define "knowledge.frontendEnv" -}}
{{- with .Values.frontend }}
{{- if .existingSecret }}
- name: FRONTEND_SESSION_SECRET
  valueFrom: {secretKeyRef: {name: {{ .existingSecret }}, key: {{ .sessionKey }}}}
{{- with .oidcKey }}
- name: OIDC_CLIENT_SECRET
  valueFrom: {secretKeyRef: {name: {{ $.Values.frontend.existingSecret }}, key: {{ . }}}}
{{- end }}
{{- with .answerKey }}
- name: ANSWER_API_KEY
  valueFrom: {secretKeyRef: {name: {{ $.Values.frontend.existingSecret }}, key: {{ . }}}}
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.auth.existingSecret (eq (dig "KNOWLEDGE_ENV" "production" .Values.gateway.config) "development") }}
- name: AUTH_JWT_SECRET
  valueFrom: {secretKeyRef: {name: {{ .Values.auth.existingSecret }}, key: {{ .Values.auth.secretKey }}}}
{{- end }}
{{- end -}}

{{- /* The gateway; the identity provider and others outside on 443; what the console and the answers ask inside, on its port. */ -}}
{{- define "knowledge.frontendEgress" -}}
- to:
    - {{- include "knowledge.peer" (dict "root" . "name" "gateway") | nindent 6 }}
  ports:
    - {port: http, protocol: TCP}
{{- $outside := false }}
{{- range $key := list "OIDC_ISSUER" "PROMETHEUS_URL" "TRACES_URL" "ANSWER_URL" }}
{{- with dig $key "" $.Values.frontend.config }}
{{- $port := include "knowledge.urlPort" . }}
{{- if eq $port "443" }}{{ $outside = true }}{{ else }}
- {{ include "knowledge.egressTo" (dict "peers" list "port" $port) | nindent 2 | trim }}
{{- end }}
{{- end }}
{{- end }}
{{ if $outside }}{{ include "knowledge.egressOutside" . }}{{ end }}
{{- end -}}
