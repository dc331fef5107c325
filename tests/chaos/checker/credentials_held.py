"""7. No credential of a node speaks for another node, or acts; nothing unauthenticated changes anything."""

from __future__ import annotations

import json

from tests.chaos.checker.history import History

MARK = "said-by-an-intruder"  # in whatever an intruder tried to have written down
REFUSED = (401, 403)
AWAY = (0, 503)  # nobody was there to refuse it


def judge(history: History) -> list[str]:
    """Each attempt was refused, and nothing of it is in the store."""
    wrong = [
        f"{line['attempt']} with the token of {line['token']} was answered {line['answered']}"
        for line in history.told("intrusions")
        if line["answered"] not in (*REFUSED, *AWAY)
    ]
    for table in ("findings", "incidents", "actions", "nodes", "audit"):
        found = sum(MARK in json.dumps(row["body"]) for row in history.rows(table))
        if found:
            wrong.append(f"{found} rows of {table} hold what an intruder said")
    return wrong
