{{- /* Names. The base is cut, never the suffix, so that names of 63 characters stay distinct. */ -}}

{{- define "knowledge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "knowledge.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "knowledge.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* {root, suffix}: the name of one object. */ -}}
{{- define "knowledge.objectName" -}}
{{- $room := sub 62 (len .suffix) | int -}}
{{- printf "%s-%s" (include "knowledge.fullname" .root | trunc $room | trimSuffix "-") .suffix -}}
{{- end -}}

{{- /* {root, name}: labels that never change over the life of a release. */ -}}
{{- define "knowledge.selectorLabels" -}}
app.kubernetes.io/name: {{ include "knowledge.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end -}}

{{- define "knowledge.labels" -}}
{{ include "knowledge.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: knowledge-gateway
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* {root, name, suffix}: metadata of one object of a component. */ -}}
{{- define "knowledge.metadata" -}}
name: {{ include "knowledge.objectName" . }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "knowledge.labels" . | nindent 2 }}
{{- with .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* {root, image}: a digest goes before a tag, an empty tag is the chart's version. */ -}}
{{- define "knowledge.image" -}}
{{- $registry := default .root.Values.image.registry .image.registry -}}
{{- with $registry }}{{ . }}/{{ end -}}
{{ .image.repository }}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ default .root.Chart.AppVersion .image.tag }}{{ end -}}
{{- end -}}

{{- /* {root, name}: the service account of a component. */ -}}
{{- define "knowledge.serviceAccount" -}}
{{- $account := (index .root.Values .name).serviceAccount -}}
{{- if $account.create -}}
{{- default (include "knowledge.objectName" (dict "root" .root "suffix" .name)) $account.name -}}
{{- else -}}
{{- default "default" $account.name -}}
{{- end -}}
{{- end -}}

{{- /* {root, name}: where the gateway finds a model service; empty where there is none. */ -}}
{{- define "knowledge.siblingUrl" -}}
{{- $component := index .root.Values .name -}}
{{- if $component.enabled -}}
http://{{ include "knowledge.objectName" (dict "root" .root "suffix" .name) }}:{{ $component.service.port }}
{{- else -}}
{{- $component.url -}}
{{- end -}}
{{- end -}}

{{- /* A URL's port. */ -}}
{{- define "knowledge.urlPort" -}}
{{- $parts := urlParse . -}}
{{- if contains ":" $parts.host -}}
{{- regexFind "[0-9]+$" $parts.host -}}
{{- else if eq $parts.scheme "https" -}}443
{{- else -}}80
{{- end -}}
{{- end -}}

{{- define "knowledge.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "knowledge.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: {{ .Values.readOnlyRootFilesystem }}
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* What is in force of a setting of the gateway: the chart's `config`, else the product's default. */ -}}
{{- define "knowledge.deadline" -}}{{ dig "SEARCH_DEADLINE_S" 30 .Values.gateway.config }}{{- end -}}

{{- define "knowledge.modelsClaim" -}}
{{- default (include "knowledge.objectName" (dict "root" . "suffix" "models")) .Values.models.volume.existingClaim -}}
{{- end -}}

{{- define "knowledge.needsHub" -}}
{{- if and (eq .Values.models.source "volume") (or .Values.reranker.enabled .Values.embedding.enabled) }}true{{ end -}}
{{- end -}}

{{- /* Environment of whatever runs the gateway's command line: settings that the chart derives, and secrets by reference. */ -}}
{{- define "knowledge.gatewayEnv" -}}
{{- with .Values.auth }}
{{- if .existingSecret }}
- name: AUTH_JWT_SECRET
  valueFrom: {secretKeyRef: {name: {{ .existingSecret }}, key: {{ .secretKey }}}}
{{- end }}
{{- end }}
{{- with .Values.opensearch }}
{{- if .existingSecret }}
- name: OPENSEARCH_USERNAME
  valueFrom: {secretKeyRef: {name: {{ .existingSecret }}, key: {{ .usernameKey }}}}
- name: OPENSEARCH_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ .existingSecret }}, key: {{ .passwordKey }}}}
{{- end }}
{{- end }}
{{- with .Values.reranker }}
{{- if .existingSecret }}
- name: RERANKER_API_KEY
  valueFrom: {secretKeyRef: {name: {{ .existingSecret }}, key: {{ .secretKey }}}}
{{- end }}
{{- end }}
{{- end -}}

{{- /* {root, name, config}: settings of a component as data of its ConfigMap. */ -}}
{{- define "knowledge.configData" -}}
HOST: "0.0.0.0"
{{- range $key, $value := .config }}
{{- if kindIs "slice" $value }}
{{ $key }}: {{ join "," $value | quote }}
{{- else if kindIs "float64" $value }}
{{ $key }}: {{ toJson $value | quote }}
{{- else }}
{{ $key }}: {{ $value | quote }}
{{- end }}
{{- end }}
OTEL_SERVICE_NAME: knowledge-{{ .name }}
{{- with .root.Values.telemetry }}
{{- with .otlpEndpoint }}
OTEL_EXPORTER_OTLP_ENDPOINT: {{ . | quote }}
{{- end }}
OTEL_RESOURCE_ATTRIBUTES: service.namespace={{ $.root.Release.Namespace }}
{{- with .environment }},deployment.environment.name={{ . }}{{ end }}
{{- end }}
{{- end -}}
