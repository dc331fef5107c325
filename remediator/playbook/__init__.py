"""Playbooks as files: their layout and schema, reading them, and trying them out before they are trusted."""
