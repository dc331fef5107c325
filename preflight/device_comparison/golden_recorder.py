"""Derives golden digests from documents of passed nodes: the digests on which devices of a platform agree. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from preflight.device_comparison.device_digests import parse_computed_digests
from preflight.results import Document, Outcome, Verdict
from vocabulary.text.plurals import format_count

DEVICES_MIN = 3
Known = Mapping[str, Mapping[str, str]]  # platform to work to digest


class RecordedGoldens(msgspec.Struct, frozen=True):
    """All current goldens; the number of new and of confirmed ones; and what was rejected, with the reason."""

    goldens: dict[str, dict[str, str]]
    new: int
    confirmed: int
    refused: tuple[str, ...]


def record_goldens(
    documents: Sequence[Document], known: Known, *, devices_min: int = DEVICES_MIN, replace: bool = False
) -> RecordedGoldens:
    """Add digests that at least `devices_min` different devices computed, without a contradiction.

    A node counts only if every given document of it is a pass without injected fault. A known golden stays, unless `replace`:
    a contradiction suggests a faulty device.
    """
    goldens = {platform: dict(works) for platform, works in known.items()}
    refused = list(_describe_unfit_nodes(documents))
    new = confirmed = 0
    for (platform, work), digests in sorted(_by_work(documents).items()):
        before = goldens.get(platform, {}).get(work)
        digest, why = _agree_on_digest(digests, devices_min)
        if not why and before not in {None, digest} and not replace:
            why = f"{before} is recorded but {digest} was computed; find out which device is wrong, or overwrite with --replace"
        if why:
            refused.append(f"{platform}, {work}: {why}")
            continue
        new, confirmed = new + (before != digest), confirmed + (before == digest)
        goldens.setdefault(platform, {})[work] = digest
    return RecordedGoldens(goldens, new, confirmed, tuple(refused))


def _describe_unfit_nodes(documents: Sequence[Document]) -> Iterator[str]:
    for node, why in _find_unfit_nodes(documents).items():
        yield f"{node}: not recorded, {why}"


def _find_unfit_nodes(documents: Sequence[Document]) -> dict[str, str]:
    """Nodes that must not contribute."""
    reasons: dict[str, str] = {}
    for document in documents:
        if document.verdict is not Verdict.PASS:
            reasons[document.node] = f"one of its documents has the verdict {document.verdict.value}"
        elif document.injected:
            reasons.setdefault(document.node, f"faults were injected: {', '.join(document.injected)}")
    return reasons


def _by_work(documents: Sequence[Document]) -> dict[tuple[str, str], dict[str, set[str]]]:
    """Platform and work to device to its digests; only of qualified nodes and whole devices."""
    unfit = _find_unfit_nodes(documents)
    found: dict[tuple[str, str], dict[str, set[str]]] = {}
    for document in documents:
        if document.node in unfit:
            continue
        identities = {device.name: device.uuid for device in document.devices}
        for result in document.results:
            told = parse_computed_digests(result) if result.outcome is Outcome.PASS else None
            if told is None or not told.votes:
                continue
            device = identities.get(result.device) or f"{document.node} {result.device}"
            for work, digest in told.digests.items():
                found.setdefault((told.platform, work), {}).setdefault(device, set()).add(digest)
    return found


def _agree_on_digest(digests: Mapping[str, set[str]], devices_min: int) -> tuple[str, str]:
    """The digest on which all devices agree, else the reason why there is none."""
    votes = Counter(digest for of_device in digests.values() for digest in of_device)
    common, _ = votes.most_common(1)[0]
    if len(votes) > 1:
        odd = sorted(device for device, of_device in digests.items() if of_device != {common})
        return "", f"devices differ, check {', '.join(odd)}"
    if len(digests) < devices_min:
        return "", f"{format_count(len(digests), 'device')} computed it, {devices_min} must agree"
    return common, ""
