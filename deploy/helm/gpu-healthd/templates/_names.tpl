{{- define "gpu-healthd.image" -}}
{{- $image := index . 0 }}{{ $chart := index . 1 -}}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}
{{- else }}{{ $image.repository }}:{{ $image.tag | default $chart.AppVersion }}{{ end -}}
{{- end }}

{{- define "gpu-healthd.centre-url" -}}
{{ .Values.healthd.centreUrl | default (printf "https://remediator.%s.svc:15180" .Release.Namespace) }}
{{- end }}

{{- define "gpu-healthd.names" -}}
{{- range $number, $name := . }}{{ if $number }}, {{ end }}{name: {{ $name }}}{{ end }}
{{- end }}

{{- /* What the chart decides of healthd's configuration; values.healthd.config goes over it. */ -}}
{{- define "gpu-healthd.healthd-config" -}}
listen: 0.0.0.0:15190
remediator:
  url: {{ include "gpu-healthd.centre-url" . }}
  ca_file: /run/secrets/centre/ca.crt
  token_file: /var/lib/gpu-healthd/token
  enrol_token_file: /run/secrets/join/join
orders:
  reboot_command: [nsenter, --target, "1", --mount, --, systemctl, reboot]
{{- end }}

{{- /* The same of the controller's. */ -}}
{{- define "gpu-healthd.centre-config" -}}
cluster: {{ .Values.cluster | quote }}
listen: 0.0.0.0:15180
tls: {certificate: /run/secrets/tls/tls.crt, key: /run/secrets/tls/tls.key}
database: {{ .Values.remediator.database.url | quote }}
mode: {{ .Values.remediator.mode }}
scheduler:
  kind: kubernetes
  kubernetes:
    node_selector: {{ include "gpu-healthd.selector" .Values.gpuNodes | quote }}
    ignore_namespaces: [{{ .Release.Namespace }}]
{{- if .Values.remediator.playbooks }}
playbooks:
{{- range $name := keys .Values.remediator.playbooks | sortAlpha }}
  - /etc/gpu-healthd-playbooks/{{ $name }}
{{- end }}
{{- end }}
{{- if .Values.remediator.topology }}
topology: /etc/gpu-healthd/topology.yaml
{{- end }}
{{- end }}

{{- define "gpu-healthd.selector" -}}
{{- range $number, $each := . }}{{ if $number }},{{ end }}{{ $each.label }}={{ $each.value }}{{ end }}
{{- end }}

{{- define "gpu-healthd.node-labels" -}}
{{- range $number, $each := . }}{{ if $number }}, {{ end }}{{ $each.label }}: {{ $each.value | quote }}{{ end }}
{{- end }}

{{- /* Variables of an admission policy over nodes: metadata and spec as maps, before and after. */ -}}
{{- define "gpu-healthd.node-parts" -}}
- name: meta
  expression: dyn(object.metadata)
- name: oldMeta
  expression: dyn(oldObject.metadata)
- name: spec
  expression: "has(object.spec) ? dyn(object.spec) : dyn({})"
- name: oldSpec
  expression: "has(oldObject.spec) ? dyn(oldObject.spec) : dyn({})"
{{- end }}
