"""Hands a finished result to other systems: the document to this node's healthd, the startup taint to Kubernetes.

Called by `preflight.main`, `commands` and `group`.
Imports nothing of preflight, and never torch.
"""
