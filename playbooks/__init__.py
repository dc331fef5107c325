"""Data only: the XID catalogue and the shipped playbooks, as YAML. No code may live here."""
