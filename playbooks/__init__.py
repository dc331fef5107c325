"""The shipped data: the Xid catalogue and the playbooks, as YAML. Contains no code."""
