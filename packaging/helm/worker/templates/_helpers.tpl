{{- define "worker.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "worker.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "worker.labels" -}}
{{ include "worker.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ .Values.role }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* The Secret of keys; empty: there is none. Nobody may be let in by accident, so that has to be said. */}}
{{- define "worker.secret" -}}
{{- if .Values.keys.existingSecret }}{{ .Values.keys.existingSecret }}
{{- else if .Values.keys.policy }}{{ include "worker.name" . }}-keys
{{- else if not .Values.insecure }}
{{- if not .Values.settings.OIDC_ISSUER }}
{{- fail "who may use the worker? set keys.existingSecret or keys.policy, or insecure=true where nobody else is" }}
{{- end }}
{{- end }}
{{- end }}
