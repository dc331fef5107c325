"""Building blocks of the command line: command groups, options, confirmation, shell completion, man pages, screens.

`healthctl.main` and every module in `healthctl.commands` call it.
It may import `api_client`, `pages`, `rendering`, `exit_codes`; never `healthctl.commands`.
Heavy imports stay inside functions, so that a simple command starts at once.
"""
