"""Blocks (facts, tables, lines), and their conversion to plain text, JSON, YAML or terminal output.

Everything that prints calls it; text from outside is escaped here, once.
It may import nothing of healthctl. `terminal` is loaded only when standard output is a terminal.
"""
