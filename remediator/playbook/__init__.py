"""Playbook files: layout, JSON Schema, loader, linter, and scenarios that test a policy before it is used.

Lives here: YAML source with positions, document types, the rule compiler, the policy linter and the scenario runner.
Called by `engine`, `config` and `healthctl`.
May import `replay`, `pipeline`, `decisions`, `state` and `model`.
"""
