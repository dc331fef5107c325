"""11. The audit log is whole: numbered without a gap, each row sealed over the one before, and the head is its end."""

from __future__ import annotations

import base64
import hashlib

from tests.chaos.checker.history import History

BEGINNING = "0" * 64


def judge(history: History) -> list[str]:
    """The chain computed anew. In a run nothing is old enough to be cut."""
    previous, number = BEGINNING, 0
    for row in history.rows("audit"):
        number += 1
        if row["seq"] != number:
            return [f"event {number} is missing"]
        text = f"{previous}\n{row['seq']}\n{row['epoch']}\n".encode() + base64.b64decode(row["bytes"])
        previous = hashlib.sha256(text).hexdigest()
        if previous != row["hash"]:
            return [f"event {number} is not what was sealed"]
    head = {row["key"]: row["value"] for row in history.rows("meta")}.get("audit_head", f"0:{BEGINNING}")
    epochs = [row["epoch"] for row in history.rows("audit")]
    wrong = (
        [] if head == f"{number}:{previous}" else [f"the log ends at {number}, its head says {head.partition(':')[0]}"]
    )
    return wrong if epochs == sorted(epochs) else [*wrong, "a deposed leader's event stands after its successor's"]
