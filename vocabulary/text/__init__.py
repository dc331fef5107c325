"""Text shared by programs: plurals, durations, surrogate escapes, bounded YAML.

All programs call it.
It imports no other vocabulary module.
"""
