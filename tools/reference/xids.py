"""The XID catalogue as tables."""

from __future__ import annotations

from tools.reference.markdown import code, head, joined, prose, table
from vocabulary.catalogue_file import load_catalogue

ABOUT = (
    (
        "Meaning, likeliest cause, severity (unless the line says otherwise) and recommendation per number. `healthctl xid explain CODE` "
        "shows the whole entry with its sources, and what a given line adds. The playbook decides the action. How to read and change "
        "entries: [the catalogue](catalogue.md)."
    ),
)


def page() -> str:
    """docs/reference/xids.md."""
    known = load_catalogue()
    lines = head("XIDs and SXIDs", *ABOUT, f"Catalogue version: {known.version}.")
    rows = [
        [
            str(entry.code),
            code(entry.mnemonic),
            prose(entry.meaning),
            entry.blame.value,
            entry.severity.value,
            entry.action.value,
        ]
        for entry in known.xids.values()
    ]
    lines += ["## XIDs", "", *table(["XID", "name", "meaning", "likeliest cause", "severity", "advice"], rows)]
    lines += ["## XID 154: requested recovery action", ""]
    actions = [[str(n), prose(a.meaning), a.severity.value, a.action.value] for n, a in known.recovery_actions.items()]
    lines += table(["value", "meaning", "severity", "advice"], actions)
    lines += ["## SXIDs", "", "Severity and advice apply only if the line itself names no severity.", ""]
    switch = [
        [str(e.code), code(e.mnemonic), prose(e.meaning), e.blame.value, e.severity.value, e.action.value]
        for e in known.sxids.values()
    ]
    return joined([*lines, *table(["SXID", "name", "meaning", "likeliest cause", "severity", "advice"], switch)])
