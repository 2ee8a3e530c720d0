{{- /* Labels of every object, and those that select the Pods of a part. */ -}}
{{- define "weft.labels" -}}
app.kubernetes.io/name: weft
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "weft.selector" -}}
app.kubernetes.io/name: weft
app.kubernetes.io/component: {{ . }}
{{- end -}}

{{- define "weft.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- /* The user names of the two parts, as the API server knows them. */ -}}
{{- define "weft.controller" -}}
system:serviceaccount:{{ .Release.Namespace }}:weft-controller
{{- end -}}

{{- define "weft.agent" -}}
system:serviceaccount:{{ .Release.Namespace }}:weft-agent
{{- end -}}

{{- /* CEL: whether the Pod has an annotation of weft that opts it in, or is a misspelt one. */ -}}
{{- define "weft.annotated" -}}
has(object.metadata.annotations) && object.metadata.annotations.exists(k, k.startsWith('weft.dev/') && k != 'weft.dev/migratable')
{{- end -}}
