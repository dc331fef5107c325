"""The node daemon and the programs beside it on a GPU node.

Holds collectors, checks, findings, reporting, orders and the exporter, the launcher (`launcher`), and what training
processes import (`trainer`). It states facts, never policy. May import `vocabulary`; nothing of the controller.
"""
