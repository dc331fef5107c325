"""9. What nobody described is recorded and shown, never dropped and never a crash."""

from __future__ import annotations

from tests.chaos.checker.history import History

UNKNOWN = {901, 902, 977}


def judge(history: History) -> list[str]:
    """A number nobody described is an unclassified finding, which takes no node; garbage ends no daemon."""
    said = {(line["node"], str(line["code"])) for line in history.told("kernel") if line["code"] in UNKNOWN}
    severities = {
        (row["body"]["node"], row["body"]["code"]): row["body"]["severity"]
        for row in history.rows("findings")
        if row["body"]["check"] == "xid"
    }
    wrong = []
    for node, code in sorted(said):
        if (node, code) not in severities:
            wrong.append(f"xid/{code} of {node} is not in the store")
        elif severities[node, code] != "unclassified":
            wrong.append(f"xid/{code} of {node} counts as {severities[node, code]}, and nobody knows what it is")
    if any(line["code"] == 0 for line in history.told("kernel")):
        wrong += [
            f"{line['daemon']} ended by itself with {line['code']}"
            for line in history.told("processes")
            if line["event"] == "ended" and line["daemon"].startswith("healthd") and not line["ours"]
            if not history.struck("read_only_disk", "full_disk", target=line["daemon"])
        ]
    return wrong
