"""The commands of preflight, one module each, behind ``python -m preflight`` and ``healthctl preflight``.

`preflight.main` calls them by name from `command_table`.
They may import every package of preflight except `checks` and `kernels`.
"""
