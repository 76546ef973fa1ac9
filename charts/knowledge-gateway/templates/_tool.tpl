{{- /* {root, name, arguments, resources, volume}: containers and volumes of a pod that runs one of the gateway's commands with the gateway's settings. */ -}}
{{- define "knowledge.gatewayTool" -}}
{{- $root := .root -}}
{{- $gateway := $root.Values.gateway -}}
containers:
  - name: {{ .name }}
    image: {{ include "knowledge.image" (dict "root" $root "image" $gateway.image) | quote }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    # What a command writes beside itself, such as the rejects of an ingestion, goes where it may be written.
    workingDir: /tmp
    command:
      {{- toYaml .arguments | nindent 6 }}
    envFrom:
      - configMapRef: {name: {{ include "knowledge.objectName" (dict "root" $root "suffix" "gateway") }}}
      {{- with $gateway.extraEnvFrom }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with concat (include "knowledge.gatewayEnv" $root | fromYamlArray) $gateway.extraEnv }}
    env:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    resources:
      {{- toYaml .resources | nindent 6 }}
    securityContext:
      {{- include "knowledge.containerSecurity" $root | nindent 6 }}
    volumeMounts:
      - {name: tmp, mountPath: /tmp}
      {{- if .volume }}
      - {name: documents, mountPath: /documents, readOnly: true}
      {{- end }}
      {{- if $root.Values.opensearch.caSecret }}
      - {name: opensearch-ca, mountPath: /etc/opensearch, readOnly: true}
      {{- end }}
      {{- with $gateway.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  - {name: tmp, emptyDir: {}}
  {{- with .volume }}
  - {{- toYaml (merge (dict "name" "documents") .) | nindent 4 }}
  {{- end }}
  {{- with $root.Values.opensearch.caSecret }}
  - {name: opensearch-ca, secret: {secretName: {{ . }}}}
  {{- end }}
  {{- with $gateway.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
