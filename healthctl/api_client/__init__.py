"""The HTTP client of the remediator: connection options, errors as one sentence, names of nodes and incidents.

Commands, credentials, demo and single_node call it.
It may import `exit_codes`, `rendering` and the `vocabulary`; proxies and redirects are decided here only.
"""
