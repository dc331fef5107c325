"""A bundle fits its bound whatever is in it, and says what had to go."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from vocabulary.messages.evidence_bundle import (
    BUNDLE_BYTES_MAX,
    EvidenceBundle,
    KernelLine,
    Missing,
    RankEvidence,
    Series,
    StepTaken,
    TopologyFact,
    fit_bundle,
)
from vocabulary.messages.wire import Gpu, decode_message, encode_message

NOW = 1_700_000_000.0
LEAST_BYTES = 8192  # what names and reasons may take

sizes = st.integers(min_value=0, max_value=300)


def bundle(points: int = 0, steps: int = 0, lines: int = 0, words: int = 0) -> EvidenceBundle:
    return EvidenceBundle(
        version=1,
        node="n1",
        boot_id="b",
        taken_at=NOW,
        from_at=NOW - 900,
        series=tuple(
            Series("temperature", "°C", f"gpu:{n}", tuple((NOW + p, 50.0) for p in range(points))) for n in range(3)
        ),
        kernel_lines=tuple(KernelLine(NOW, f"{n} \x1b <b>{'x' * 400}", n) for n in range(lines)),
        ranks=(
            RankEvidence("j", 1, 0, 8, "step", 7, NOW, NOW, steps=tuple(StepTaken(n, NOW, 1.0) for n in range(steps))),
        ),
        gpus=(Gpu(0, "GPU-0", "0000:3b:00.0"),),
        versions={f"v{n}": "1" for n in range(words)},
        topology=tuple(TopologyFact(f"gpu:{n}", "path", "x" * 100) for n in range(words)),
        missing=tuple(Missing(f"thing {n}", "y" * 100) for n in range(words)),
    )


@given(sizes, sizes, sizes, sizes, st.integers(min_value=LEAST_BYTES, max_value=200_000))
def test_it_fits_and_says_what_went(points: int, steps: int, lines: int, words: int, room: int) -> None:
    whole = bundle(points, steps, lines, words)
    result = fit_bundle(whole, room)
    assert len(encode_message(result)) <= room
    assert decode_message(encode_message(result), EvidenceBundle) == result
    if len(encode_message(whole)) <= room:
        assert result == whole
    else:
        assert len(result.missing) == 0 or result.missing[-1].why.endswith(f"{room} bytes")
        assert result.missing != whole.missing


def test_old_points_are_thinned_before_anything_newer_goes() -> None:
    whole = bundle(points=1000, lines=20)
    result = fit_bundle(whole, len(encode_message(whole)) - 1)
    assert [len(series.points) for series in result.series] == [470 + 60] * 3
    assert result.series[0].points[-60:] == whole.series[0].points[-60:]
    assert result.kernel_lines == whole.kernel_lines
    assert [missing.what for missing in result.missing] == ["some points, the oldest first"]


def test_the_newest_lines_and_steps_stay_longest() -> None:
    whole = bundle(steps=1024, lines=500)
    result = fit_bundle(whole, 60_000)
    assert result.kernel_lines[-1] == whole.kernel_lines[-1]
    assert result.ranks[0].steps[-1] == whole.ranks[0].steps[-1]
    assert [missing.what for missing in result.missing] == ["the oldest training steps", "the oldest kernel lines"]


def test_a_busy_node_of_eight_gpus_needs_no_shortening() -> None:
    points = tuple((NOW + n + 0.123, 1234.5) for n in range(1024))
    series = tuple(Series("power", "W", f"gpu:GPU-{n}", points) for n in range(8 * 7))
    steps = tuple(StepTaken(n, NOW + n + 0.123456, 0.912345) for n in range(1024))
    ranks = tuple(RankEvidence("job", 1, n, 8, "step", 1024, NOW, NOW, steps=steps) for n in range(8))
    busy = msgspec.structs.replace(bundle(lines=500), series=series, ranks=ranks)
    assert fit_bundle(busy, BUNDLE_BYTES_MAX) is busy
