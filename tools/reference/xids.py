"""The XID catalogue as a table, from the data that healthd judges by."""

from __future__ import annotations

from tools.reference.markdown import join_lines, render_code, render_head, render_prose, render_table
from vocabulary.fault_catalogue.catalogue_file import load_catalogue

ABOUT = (
    (
        "One row a number: what it means, where it most likely comes from, how grave healthd calls it when nothing in the line says "
        "otherwise, and what the catalogue would do. `healthctl xid explain CODE` shows the whole entry with its sources, and what a "
        "given line adds. The playbook decides what is done; [the catalogue](catalogue.md) tells how entries are read and changed."
    ),
)


def render_xids_page() -> str:
    """docs/reference/xids.md."""
    known = load_catalogue()
    lines = render_head("XIDs and SXIDs", *ABOUT, f"Version of the catalogue: {known.version}.")
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
    lines += ["## XID 154: what the driver asks for", ""]
    actions = [
        [str(n), render_prose(a.meaning), a.severity.value, a.action.value] for n, a in known.recovery_actions.items()
    ]
    lines += render_table(["value", "meaning", "severity", "advice"], actions)
    lines += ["## SXIDs", "", "Severity and advice count only where the line itself does not say how bad it is.", ""]
    switch = [
        [str(e.code), render_code(e.mnemonic), render_prose(e.meaning), e.blame.value, e.severity.value, e.action.value]
        for e in known.sxids.values()
    ]
    return join_lines(
        [*lines, *render_table(["SXID", "name", "meaning", "likeliest cause", "severity", "advice"], switch)]
    )
