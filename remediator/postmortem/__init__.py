"""Post-mortem documents of closed incidents.

Lives here: facts of an incident (pure), then charts, cost and root cause, then rendering as Markdown and HTML.
Called by `api` and `web`.
Nothing here queries the store, decides or writes.
May import `model` only.
"""
