{{- /*
{root, name, config, env, volumes, mounts, grace, ingress, egress}: everything that one component consists of.
`config` is what the chart derives; the user's `config` joins it and wins nowhere (guards see to that).
*/ -}}
{{- define "knowledge.workload" -}}
{{- $root := .root -}}
{{- $name := .name -}}
{{- $component := index $root.Values $name -}}
{{- $object := dict "root" $root "name" $name "suffix" $name -}}
{{- $full := include "knowledge.objectName" $object -}}
{{- $config := include "knowledge.configData" (dict "root" $root "name" $name "config" (merge (dict "PORT" $component.service.port) .config $component.config)) -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "knowledge.metadata" $object | nindent 2 }}
data:
  {{- $config | nindent 2 }}
---
{{- if $component.serviceAccount.create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "knowledge.serviceAccount" $object }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "knowledge.labels" $object | nindent 4 }}
  {{- with $component.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
---
{{- end }}
apiVersion: v1
kind: Service
metadata:
  name: {{ $full }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "knowledge.labels" $object | nindent 4 }}
  {{- with (merge (dict) $component.service.annotations $root.Values.commonAnnotations) }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ $component.service.type }}
  selector:
    {{- include "knowledge.selectorLabels" $object | nindent 4 }}
  ports:
    - {name: http, port: {{ $component.service.port }}, targetPort: http, protocol: TCP}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "knowledge.metadata" $object | nindent 2 }}
spec:
  {{- if not $component.autoscaling.enabled }}
  replicas: {{ $component.replicas }}
  {{- end }}
  revisionHistoryLimit: 5
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  selector:
    matchLabels:
      {{- include "knowledge.selectorLabels" $object | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "knowledge.labels" $object | nindent 8 }}
        {{- with $component.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: {{ $name }}
        checksum/config: {{ sha256sum $config }}
        {{- with (merge (dict) $component.podAnnotations $root.Values.commonAnnotations) }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "knowledge.serviceAccount" $object }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ .grace }}
      securityContext:
        {{- include "knowledge.podSecurity" . | nindent 8 }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $component.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      containers:
        - name: {{ $name }}
          image: {{ include "knowledge.image" (dict "root" $root "image" $component.image) | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          ports:
            - {name: http, containerPort: {{ $component.service.port }}, protocol: TCP}
          envFrom:
            - configMapRef: {name: {{ $full }}}
            {{- with $component.extraEnvFrom }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- $env := concat (.env | fromYamlArray) $component.extraEnv }}
          {{- with $env }}
          env:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          startupProbe:
            httpGet: {path: {{ .startupPath }}, port: http}
            {{- toYaml $component.startupProbe | nindent 12 }}
          readinessProbe:
            httpGet: {path: /ready, port: http}
            {{- toYaml $component.readinessProbe | nindent 12 }}
          livenessProbe:
            httpGet: {path: /health, port: http}
            {{- toYaml $component.livenessProbe | nindent 12 }}
          lifecycle:
            # Long enough for the endpoints to forget the pod; without a shell in the image.
            preStop: {sleep: {seconds: 5}}
          resources:
            {{- toYaml $component.resources | nindent 12 }}
          securityContext:
            {{- include "knowledge.containerSecurity" $root | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- with concat (.mounts | default list) $component.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - {name: tmp, emptyDir: {}}
        {{- with concat (.volumes | default list) $component.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $component.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $component.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $component.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $component.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- range . }}
        {{- $selector := dict "labelSelector" (dict "matchLabels" (include "knowledge.selectorLabels" $object | fromYaml)) }}
        - {{- toYaml (merge (dict) . $selector) | nindent 10 }}
        {{- end }}
      {{- end }}
{{- if $component.autoscaling.enabled }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "knowledge.metadata" $object | nindent 2 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ $full }}}
  minReplicas: {{ $component.autoscaling.minReplicas }}
  maxReplicas: {{ $component.autoscaling.maxReplicas }}
  metrics:
    - type: Resource
      resource: {name: cpu, target: {type: Utilization, averageUtilization: {{ $component.autoscaling.targetCPUUtilizationPercentage }}}}
{{- end }}
{{- $pods := ternary $component.autoscaling.minReplicas $component.replicas $component.autoscaling.enabled }}
{{- if and $component.podDisruptionBudget.enabled (gt (int $pods) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "knowledge.metadata" $object | nindent 2 }}
spec:
  maxUnavailable: {{ $component.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "knowledge.selectorLabels" $object | nindent 6 }}
{{- end }}
{{- if $root.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "knowledge.metadata" $object | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "knowledge.selectorLabels" $object | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - from:
        {{- toYaml .callers | nindent 8 }}
        {{- with $root.Values.networkPolicy.monitoring }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {port: http, protocol: TCP}
    {{- with $component.networkPolicy.extraIngress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  egress:
    {{- include "knowledge.egressBase" $root | nindent 4 }}
    {{- with .egress | fromYamlArray }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $component.networkPolicy.extraEgress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end -}}

{{- /* Egress that every pod of the release needs: names, and telemetry where it is exported. */ -}}
{{- define "knowledge.egressBase" -}}
- to:
    {{- toYaml .Values.networkPolicy.dns | nindent 4 }}
  ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- with .Values.telemetry }}
{{- if .otlpEndpoint }}
- {{ include "knowledge.egressTo" (dict "peers" .peers "port" (include "knowledge.urlPort" .otlpEndpoint)) | nindent 2 | trim }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* {peers, port}: one rule; without peers every address on this port. */ -}}
{{- define "knowledge.egressTo" -}}
{{- with .peers -}}
to:
  {{- toYaml . | nindent 2 }}
{{ end -}}
ports:
  - {port: {{ .port }}, protocol: TCP}
{{- end -}}

{{- /* {root, name}: a peer that is a component of this release. */ -}}
{{- define "knowledge.peer" -}}
podSelector:
  matchLabels:
    {{- include "knowledge.selectorLabels" . | nindent 4 }}
{{- end -}}

{{- define "knowledge.egressOpensearch" -}}
- {{ include "knowledge.egressTo" (dict "peers" .Values.opensearch.peers "port" (include "knowledge.urlPort" .Values.opensearch.url)) | nindent 2 | trim }}
{{- end -}}

{{- /* {root, name}: the rule for a sibling, or for the foreign service in its place. */ -}}
{{- define "knowledge.egressSibling" -}}
{{- $component := index .root.Values .name -}}
{{- if $component.enabled -}}
- to:
    - {{- include "knowledge.peer" . | nindent 6 }}
  ports:
    - {port: http, protocol: TCP}
{{- else if $component.url -}}
{{- $port := include "knowledge.urlPort" $component.url -}}
- {{ include "knowledge.egressTo" (dict "peers" (eq $port "443" | ternary (include "knowledge.outside" .root | fromYamlArray) list) "port" $port) | nindent 2 | trim }}
{{- end -}}
{{- end -}}

{{- define "knowledge.outside" -}}
{{- range .Values.egress.cidrs }}
- ipBlock: {cidr: {{ . }}}
{{- end }}
{{- end -}}

{{- /* Port 443 to `egress.cidrs`. */ -}}
{{- define "knowledge.egressOutside" -}}
{{- with include "knowledge.outside" . | fromYamlArray -}}
- to:
    {{- toYaml . | nindent 4 }}
  ports:
    - {port: 443, protocol: TCP}
{{- end -}}
{{- end -}}
