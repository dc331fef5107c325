"""The pipeline run without a cluster.

Lives here: a simulated cluster that answers planned actions, and replay of the recorded journal under the same or another policy.
Called by `playbook` (scenarios) and `healthctl replay`.
Pure: the same inputs and settings give the same decisions.
May import `pipeline`, `decisions`, `state` and `model`.
"""
