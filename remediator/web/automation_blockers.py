"""What blocks automation, short enough for every page, and what people set by hand besides. Pure.

Sentences that differ only in whom they are about become one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from remediator.model.blocked_reasons import IncidentBlocker, mode_sentence_prefix, parse_incident_blocker
from remediator.model.override_records import Standing
from remediator.model.scheduler_hold import HoldOwner, NodeHold
from remediator.overrides.cluster_overrides import list_open_silences

ALIKE_MIN = 3  # so many sentences that end alike are said as one
NAMED_MAX = 200
_PLURAL = (("is ", "are "), ("waits ", "wait "))


class AutomationBlocker(msgspec.Struct, frozen=True):
    """One sentence. `about` are the incidents that it is about, those beyond a limit left out; it stands for several where they are."""

    text: str
    about: tuple[IncidentBlocker, ...] = ()

    @property
    def single(self) -> bool:
        """Whether it is about incidents alone."""
        return bool(self.about)


class ManualSettings(msgspec.Struct, frozen=True):
    """How many nodes people have cordoned, and how many silences stand. Neither keeps the system from acting elsewhere."""

    cordons: int = 0
    silences: int = 0


def summarize_manual_settings(
    holds: Iterable[NodeHold], standing: Mapping[str, Standing], now: float
) -> ManualSettings:
    """What stands at `now` (UTC s)."""
    cordons = sum(hold.schedulable is False and hold.owner is HoldOwner.OPERATOR for hold in holds)
    return ManualSettings(cordons, sum(now < silence.until for silence in list_open_silences(standing)))


def fold_blockers(sentences: Iterable[str]) -> tuple[AutomationBlocker, ...]:
    """The sentences, in their order; those alike stand together where the first of them stood.

    >>> [b.text for b in fold_blockers(["mode is observe", *(f"inc-{n} on n{n} is held back by a guard" for n in range(4))])]
    ['mode is observe', '4 incidents are held back by a guard']
    """
    together: dict[tuple[str, bool], list[IncidentBlocker]] = {}
    for sentence in dict.fromkeys(sentences):
        about = _parse_without_id(parse_incident_blocker(sentence))
        alike = together.setdefault((about.what if about else sentence, about is not None), [])
        alike += [about] if about else []
    blocks = []
    for (what, _), alike in together.items():
        if not alike:
            blocks.append(AutomationBlocker(what))
        elif len(alike) < ALIKE_MIN:
            blocks += [AutomationBlocker(str(one), (one,)) for one in alike]
        else:
            blocks.append(
                AutomationBlocker(f"{len(alike)} incidents {_plural_sentence(what)}", tuple(alike[:NAMED_MAX]))
            )
    return tuple(blocks)


def other_blockers(blocks: Iterable[AutomationBlocker], mode: str) -> tuple[AutomationBlocker, ...]:
    """What blocks beside the mode and the breaker, of which the headline speaks already."""
    said = f"{mode_sentence_prefix(mode)}:", f"{mode_sentence_prefix(mode)} (", "the breaker is open since "
    return tuple(block for block in blocks if not block.text.startswith(said))


def _parse_without_id(one: IncidentBlocker | None) -> IncidentBlocker | None:
    """Without the id of what is to be approved at its end, which nobody reads and which would tell all from each other."""
    return None if one is None else one._replace(what=re.sub(rf" \({re.escape(one.incident)}\S*\)$", "", one.what))


def _plural_sentence(what: str) -> str:
    for one, many in _PLURAL:
        if what.startswith(one):
            return many + what.removeprefix(one)
    return what
