"""A node's evidence of the last minutes, so that a person can see afterwards what led to an incident.

A bundle is bounded: `fit_bundle` thins out the oldest data, and lists in `missing` what was dropped. Times are UTC
seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from vocabulary.messages.wire import Gpu

EVIDENCE_VERSION = 1
BUNDLE_BYTES_MAX = 4 << 20
WHY_CHARS_MAX = 300
TEXT_CHARS_MAX = 500  # of a kernel line

POINTS_KEPT_WHOLE = 60  # the newest points of a series are thinned last
STEPS_KEPT = 16
LINES_KEPT = 50

T = TypeVar("T")


class Series(msgspec.Struct, frozen=True, omit_defaults=True):
    """One value over time, oldest first. `component` is a component's key, as in findings; `unit` is text."""

    name: str
    unit: str
    component: str
    points: tuple[tuple[float, float], ...] = ()


class KernelLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record of the kernel log, truncated to `TEXT_CHARS_MAX`.

    Facility 0 is the kernel; a process's record has another.
    """

    at: float
    text: str
    seq: int
    facility: int = 0


class StepTaken(msgspec.Struct, frozen=True, omit_defaults=True):
    """One finished training step; `sections` are seconds of its parts, if the trainer reports them.

    A reported loss or gradient norm that is NaN or infinite is None, and named in `not_finite`.
    """

    step: int
    started_at: float
    seconds: float
    sections: dict[str, float] = {}
    loss: float | None = None
    grad_norm: float | None = None
    tokens: int | None = None
    not_finite: tuple[str, ...] = ()


class RankEvidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rank's page, also after its process died: its state, since when, and its last steps."""

    job: str
    attempt: int
    rank: int
    world: int
    phase: str
    step: int
    since: float
    at: float
    alive: bool = True
    steps: tuple[StepTaken, ...] = ()
    section: str = ""
    gpu: str = ""  # its UUID


class RankStack(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a rank's main thread was, outermost frame first, each as ``function (file:line)``.

    `source`: torch, py-spy or proc, whichever answered first. `place` is what the rank waited for, by
    `vocabulary.stacks.stack_places`; `calls` are its open collectives as torch's flight recorder has them, in JSON.
    """

    job: str
    attempt: int
    rank: int
    pid: int
    at: float
    source: str
    frames: tuple[str, ...]
    place: str = ""
    calls: str = ""


class TopologyFact(msgspec.Struct, frozen=True):
    """How one component connects to others, as text: ``gpu:GPU-1``, ``pcie path``, ``0000:00:01.0 > 0000:3b:00.0``."""

    component: str
    name: str
    value: str


class Missing(msgspec.Struct, frozen=True):
    """What is unavailable, and why."""

    what: str
    why: str


class EvidenceBundle(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything a node knows of the time from `from_at` to `taken_at`.

    `order` is empty if a person on the node requested it.
    """

    version: int
    node: str
    boot_id: str
    taken_at: float
    from_at: float
    order: str = ""
    incident: str = ""
    injected: bool = False
    series: tuple[Series, ...] = ()
    kernel_lines: tuple[KernelLine, ...] = ()
    ranks: tuple[RankEvidence, ...] = ()
    stacks: tuple[RankStack, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    versions: dict[str, str] = {}
    topology: tuple[TopologyFact, ...] = ()
    missing: tuple[Missing, ...] = ()


def fit_bundle(bundle: EvidenceBundle, bytes_max: int = BUNDLE_BYTES_MAX) -> EvidenceBundle:
    """Return as much of the bundle as fits `bytes_max` when encoded; `missing` names what was dropped.

    First the older points are thinned, then old steps and old kernel lines go, then whole parts, the least useful
    first. The minimum (names and a few reasons) takes some kilobytes, whatever `bytes_max` is.
    """
    for part, shorten in _SHORTENINGS:
        shortened = False
        while len(msgspec.json.encode(bundle)) > bytes_max:
            smaller = shorten(bundle)
            if smaller == bundle:
                break
            if not shortened:
                why = f"the bundle would be larger than {bytes_max} bytes"
                smaller = replace(smaller, missing=(*smaller.missing, Missing(part, why)))
                shortened = True
            bundle = smaller
    return bundle


def _thin_points(bundle: EvidenceBundle) -> EvidenceBundle:
    """Drop every other point older than the newest minute."""
    return replace(bundle, series=tuple(_thin_series(series) for series in bundle.series))


def _thin_series(series: Series) -> Series:
    old, new = series.points[:-POINTS_KEPT_WHOLE], series.points[-POINTS_KEPT_WHOLE:]
    return replace(series, points=old[1::2] + new) if old else series


def _drop_old_steps(bundle: EvidenceBundle) -> EvidenceBundle:
    return replace(bundle, ranks=tuple(replace(r, steps=_newer_half(r.steps, STEPS_KEPT)) for r in bundle.ranks))


def _drop_old_lines(bundle: EvidenceBundle) -> EvidenceBundle:
    return replace(bundle, kernel_lines=_newer_half(bundle.kernel_lines, LINES_KEPT))


def _newer_half(items: tuple[T, ...], least: int) -> tuple[T, ...]:
    return items[-max(least, len(items) // 2) :] if len(items) > least else items


_SHORTENINGS: tuple[tuple[str, Callable[[EvidenceBundle], EvidenceBundle]], ...] = (
    ("some points, the oldest first", _thin_points),
    ("the oldest training steps", _drop_old_steps),
    ("the oldest kernel lines", _drop_old_lines),
    ("topology", lambda bundle: replace(bundle, topology=())),
    ("all series", lambda bundle: replace(bundle, series=())),
    ("all ranks", lambda bundle: replace(bundle, ranks=())),
    ("all stacks", lambda bundle: replace(bundle, stacks=())),
    ("all kernel lines", lambda bundle: replace(bundle, kernel_lines=())),
    ("versions", lambda bundle: replace(bundle, versions={})),
    ("GPUs", lambda bundle: replace(bundle, gpus=())),
    ("other missing items", lambda bundle: replace(bundle, missing=bundle.missing[-len(_SHORTENINGS) :])),
)
