"""The commands, one module per command group, imported only when the command runs.

`healthctl.main` calls them by name from its table.
They may import every package of healthctl; no package imports them.
"""
