{{- define "cdc.node" -}}
{{ printf "%s-node" (.Release.Name | trunc 50 | trimSuffix "-") }}
{{- end }}

{{- define "cdc.executor" -}}
{{ printf "%s-executor" (.Release.Name | trunc 50 | trimSuffix "-") }}
{{- end }}

{{- define "cdc.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* What nodes and executors have in common. */ -}}
{{- define "cdc.selector" -}}
app.kubernetes.io/name: cdc
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cdc.nodes" -}}
{{ include "cdc.selector" . }}
app.kubernetes.io/component: node
{{- end }}

{{- define "cdc.labels" -}}
{{ include "cdc.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "cdc.scheme" -}}
{{ ternary "HTTPS" "HTTP" .Values.tls.enabled }}
{{- end }}

{{- /* Files that changefeeds refer to, in nodes and executors. */ -}}
{{- define "cdc.files" -}}
- name: secrets
  secret:
    secretName: {{ .Values.secrets.files }}
    optional: true
    defaultMode: 0440
{{- end }}
