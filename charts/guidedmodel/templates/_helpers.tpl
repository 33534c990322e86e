{{- define "guidedmodel.selector" -}}
app.kubernetes.io/name: guidedmodel-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "guidedmodel.labels" -}}
{{ include "guidedmodel.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "guidedmodel.image" -}}
{{ required "image.repository is not set: build and push the image with `make push REGISTRY=...`, then add --set image.repository=REGISTRY/guidedmodel" .Values.image.repository }}
{{- with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}
