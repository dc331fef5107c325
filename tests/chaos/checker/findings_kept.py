"""1. No finding is lost between the kernel log and the store, none counts twice, and what no kernel said is none.

A corrupt outbox makes a node read its log from the beginning, so there lines may count again.
"""

from __future__ import annotations

from collections import Counter

from tests.chaos.checker.history import History

AGAIN = ("corrupt_outbox",)


def judge(history: History) -> list[str]:
    """By node, number and GPU: lines written against what the store counts."""
    written = Counter(
        (line["node"], f"xid/{line['code']}", line["pci"])
        for line in history.told("kernel")
        if line["author"] == "kernel" and line["code"]
    )
    stored: Counter[tuple[str, str, str]] = Counter()
    for row in history.rows("findings"):
        finding = row["body"]
        if finding["check"] == "xid":
            key = (finding["node"], f"xid/{finding['code']}", finding["component"].get("pci", ""))
            stored[key] += finding.get("count", 1)
    wrong = []
    for key in sorted({*written, *stored}):
        lines, found = written[key], stored[key]
        again = bool(history.struck(*AGAIN, target=f"healthd-{key[0]}"))
        if found < lines:
            wrong.append(f"{' '.join(key)}: {lines} lines, the store has {found}")
        elif found > lines and not (again and lines):
            wrong.append(f"{' '.join(key)}: the store has {found}, the kernel said {lines}")
    return wrong
