"""Formats a group's document for people. Pure."""

from __future__ import annotations

from preflight.group.culprit_messages import describe_culprit
from preflight.group.gpu_direct import GpuDirect
from preflight.group.group_records import GroupDocument, Standing
from vocabulary.text.plurals import format_count

PAIRS_SHOWN = 12


def render_group_text(document: GroupDocument) -> str:
    """The verdict first, then the culprits, then other observations."""
    marked = f" (injected: {', '.join(document.injected)})" if document.injected else ""
    head = (
        f"group of {len(document.nodes)}: {document.verdict.value.upper()} after {format_count(document.rounds, 'round')} of pairs over "
        f"{document.backend} in {document.seconds:.1f} s{marked}"
    )
    lines = [head]
    lines += [f"  culprit   {describe_culprit(one)}" for one in document.culprits]
    lines += [f"  suspect   {describe_culprit(one)}" for one in document.suspects]
    accused = {describe_culprit(one) for one in (*document.culprits, *document.suspects)}
    lines += [f"  because   {reason}" for reason in document.reasons if reason not in accused]
    lines += [f"  remark    {remark}" for remark in document.remarks]
    if document.exclude:
        lines.append(f"  leave out {','.join(document.exclude)}")
    count = {standing: sum(node.standing is standing for node in document.nodes) for standing in Standing}
    lines.append(
        "  nodes     " + ", ".join(f"{number} {standing.value}" for standing, number in count.items() if number)
    )
    uses = [node.gpu_direct for node in document.nodes]
    if known := [f"{uses.count(use)} {use.value}" for use in (GpuDirect.YES, GpuDirect.NO) if use in uses]:
        lines.append(f"  GPUDirect RDMA: {', '.join(known)}")
    rates = sorted((pair.rate, pair.a, pair.b) for pair in document.pairs if pair.rate is not None)
    for rate, a, b in rates[:PAIRS_SHOWN]:
        lines.append(f"  {rate:8.2f} {document.unit}  {a} - {b}")
    if len(rates) > PAIRS_SHOWN:
        lines.append(f"  {format_count(len(rates) - PAIRS_SHOWN, 'faster pair')} more")
    return "\n".join("".join(c if c.isprintable() else "?" for c in line) for line in lines)
