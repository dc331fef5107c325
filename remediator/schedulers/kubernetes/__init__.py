"""The Kubernetes backend: it cordons nodes, recognises its own cordons, lists pods and evicts them.

`kubernetes_scheduler` is the entry point; `node_cordon`, `pods`, `job_owners` and `object_names` are pure. Only
`api_connection` uses the official client library, and imports it on first use: other backends do not need it.
"""
