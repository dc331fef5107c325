"""The XID catalogue as tables."""

from __future__ import annotations

from tools.reference.markdown import join_lines, render_code, render_head, render_prose, render_table
from vocabulary.fault_catalogue.catalogue_file import load_catalogue

ABOUT = (
    (
        "Meaning, likeliest cause, severity (unless the line says otherwise) and recommendation per number. `healthctl xid explain CODE` "
        "shows the whole entry with its sources, and what a given line adds. The playbook decides the action. How to read and change "
        "entries: [the catalogue](catalogue.md)."
    ),
)


def render_xids_page() -> str:
    """docs/reference/xids.md."""
    known = load_catalogue()
    lines = render_head("XIDs and SXIDs", *ABOUT, f"Catalogue version: {known.version}.")
    rows = [
        [
            str(entry.code),
            render_code(entry.mnemonic),
            render_prose(entry.meaning),
            entry.blame.value,
            entry.severity.value,
            entry.action.value,
        ]
        for entry in known.xids.values()
    ]
    lines += ["## XIDs", "", *render_table(["XID", "name", "meaning", "likeliest cause", "severity", "advice"], rows)]
    lines += ["## XID 154: requested recovery action", ""]
    actions = [
        [str(n), render_prose(a.meaning), a.severity.value, a.action.value] for n, a in known.recovery_actions.items()
    ]
    lines += render_table(["value", "meaning", "severity", "advice"], actions)
    lines += ["## SXIDs", "", "Severity and advice apply only if the line itself names no severity.", ""]
    switch = [
        [str(e.code), render_code(e.mnemonic), render_prose(e.meaning), e.blame.value, e.severity.value, e.action.value]
        for e in known.sxids.values()
    ]
    return join_lines(
        [*lines, *render_table(["SXID", "name", "meaning", "likeliest cause", "severity", "advice"], switch)]
    )
