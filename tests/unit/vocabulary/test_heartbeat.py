"""A heartbeat says the same as the report that it replaces, or it is not sent."""

from __future__ import annotations

import math
import struct

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.healthd.test_controller_client import finding
from vocabulary.health import Health
from vocabulary.messages.heartbeat import (
    RANK,
    Heartbeat,
    apply_heartbeat,
    build_heartbeat,
    decode_heartbeat,
    encode_heartbeat,
    fits_report,
    newest_windows,
    read_windows,
)
from vocabulary.messages.telemetry_messages import TelemetryPart
from vocabulary.messages.wire import (
    FindingChange,
    Gpu,
    ProductDigests,
    RankStatus,
    Report,
    StepWindow,
    Versions,
    WireError,
    encode_message,
)

WINDOWS = tuple(StepWindow(8 * n, 8, 8, 0.5, 0.25, None, 0.125) for n in range(6))
RANK_0 = RankStatus(
    "j", 0, 0, 2, 11, 40, "step", 100.25, 0.5, section="forward", step_median=0.5,
    sections={"forward": 0.25}, sections_median={"forward": 0.25, "communication": 0.125}, windows=WINDOWS[:4],
)  # fmt: skip
BASE = Report(
    version=1, node="n1", boot_id="b", agent="a", seq=7, sent_at=101.0, ttl_s=30.0, health=Health.HEALTHY,
    ranks=(RANK_0, RankStatus("j", 0, 1, 2, 12, 40, "save", 100.5)), gpus=(Gpu(0, "GPU-0", "0000:3b:00.0"),),
)  # fmt: skip

single = st.integers(0, 7_999_999).map(lambda micros: micros / 1e6)  # as healthd rounds them
moving = st.fixed_dictionaries(
    {
        "step": st.integers(0, 2**62),
        "at": st.floats(0, 2e9),
        "step_seconds": single,
        "step_median": single,
        "phase": st.sampled_from(["step", "save", "", "done"]),
        "section": st.text(max_size=12).filter(lambda text: "\0" not in text and text.isprintable()),
        "stack": st.sampled_from(["", "collective"]),
    }
)
window = st.builds(
    lambda number, exponent, steps, whole, part: StepWindow(number << exponent, 1 << exponent, steps, whole, part),
    st.integers(0, 2**32 - 1), st.integers(0, 10), st.integers(1, 1024), single, st.none() | single,
)  # fmt: skip


@given(st.lists(moving, min_size=2, max_size=2), st.lists(window, max_size=8, unique=True), st.integers(0, 8))
@settings(max_examples=200)
def test_a_heartbeat_says_what_the_report_would(
    now: list[dict[str, object]], windows: list[StepWindow], known: int
) -> None:
    before, after = tuple(windows[:known]), tuple(windows)
    base = replace(BASE, ranks=tuple(replace(rank, windows=before) for rank in BASE.ranks))
    ranks = tuple(replace(rank, sections={}, windows=after, **told) for rank, told in zip(base.ranks, now, strict=True))
    packed = build_heartbeat(base, replace(base, seq=8, sent_at=111.0, ranks=ranks), newest_windows(base))
    assert packed is not None
    content = encode_heartbeat(packed)
    assert content is not None
    heartbeat = decode_heartbeat(content)
    assert (heartbeat.agent, heartbeat.base, heartbeat.seq, heartbeat.sent_at) == ("a", 7, 8, 111.0)
    assert fits_report(heartbeat, 2, 2)
    assert apply_heartbeat(base.ranks, heartbeat) == [replace(rank, windows=()) for rank in ranks]
    assert list(read_windows(heartbeat)) == [after[known:], after[known:]]


NEWS = {
    "a change": {"changes": (FindingChange(1, finding(1)),)},
    "a finding": {"active": (finding(1),)},
    "health": {"health": Health.DEGRADED},
    "another boot": {"boot_id": "c"},
    "another agent": {"agent": "z"},
    "a GPU": {"gpus": ()},
    "versions": {"versions": Versions(driver="570")},
    "a longer interval": {"ttl_s": 60.0},
    "telemetry": {"telemetry": encode_message(TelemetryPart(1.0, ()))},
    "a rank that is gone": {"ranks": BASE.ranks[:1]},
    **{
        f"a rank's {name}": {"ranks": (replace(RANK_0, **{name: value}), BASE.ranks[1])}
        for name, value in {
            "job": "k", "attempt": 1, "rank": 5, "world": 4, "pid": 99, "alive": False, "role": "actor",
            "pipeline_stage": 1, "tensor_group": 1, "data_group": 1, "expert_group": 1, "gpu": "GPU-9",
            "digests": ProductDigests("p"), "sections_median": {"forward": 0.25},
        }.items()
    },
    "a step beyond the record": {"ranks": (replace(RANK_0, step=2**63), BASE.ranks[1])},
    "a time beyond the record": {"ranks": (replace(RANK_0, windows=(StepWindow(0, 8, 8, 1e39),)), BASE.ranks[1])},
    "a window of three steps": {"ranks": (replace(RANK_0, windows=(StepWindow(0, 3, 3, 1.0),)), BASE.ranks[1])},
    "a window between two": {"ranks": (replace(RANK_0, windows=(StepWindow(4, 8, 3, 1.0),)), BASE.ranks[1])},
}  # fmt: skip


@pytest.mark.parametrize("news", NEWS.values(), ids=NEWS.keys())
def test_news_is_no_heartbeat(news: dict[str, object]) -> None:
    assert build_heartbeat(BASE, replace(BASE, seq=8), {}) is not None
    assert build_heartbeat(BASE, replace(BASE, seq=8, **news), {}) is None


def test_every_field_of_a_report_and_of_a_rank_is_compared_or_carried() -> None:
    """A field that is added to either must be thought of here: a heartbeat must not hide what it changes."""
    carried = {"seq", "sent_at", "changes", "active", "telemetry", "ranks"}
    compared = {"version", "node", "boot_id", "agent", "ttl_s", "health", "gpus", "versions", "swaps"}
    assert set(Report.__struct_fields__) == carried | compared
    moves = {"step", "at", "step_seconds", "step_median", "phase", "section", "stack", "sections", "windows"}
    stays = {
        "job", "attempt", "rank", "pid", "world", "alive", "role", "pipeline_stage", "tensor_group", "data_group",
        "expert_group", "gpu", "digests", "sections_median",
    }  # fmt: skip
    assert set(RankStatus.__struct_fields__) == moves | stays


def test_windows_of_a_job_that_went_back_are_sent_again() -> None:
    back = replace(RANK_0, windows=(*WINDOWS[2:4], *WINDOWS[:2]))
    heartbeat = build_heartbeat(BASE, replace(BASE, seq=8, ranks=(back, BASE.ranks[1])), newest_windows(BASE))
    assert heartbeat is not None
    assert next(read_windows(heartbeat)) == WINDOWS[:2]
    lost = replace(RANK_0, windows=WINDOWS[5:])
    heartbeat = build_heartbeat(BASE, replace(BASE, seq=8, ranks=(lost, BASE.ranks[1])), newest_windows(BASE))
    assert heartbeat is not None
    assert next(read_windows(heartbeat)) == WINDOWS[5:], "the last one that was received is no longer there"


@pytest.mark.parametrize("text", ["x" * 65, "a\0b", "\ud800"])
def test_a_text_that_breaks_a_bound_is_no_heartbeat(text: str) -> None:
    said = replace(BASE, seq=8, ranks=(replace(RANK_0, phase=text), BASE.ranks[1]))
    heartbeat = build_heartbeat(BASE, said, {})
    assert heartbeat is None or encode_heartbeat(heartbeat) is None


GOOD = Heartbeat(1, "a", 7, 8, 1.0, ("step", ""), RANK.pack(1, 1.0, 0.5, 0.5, 0, 1, 1, 0), b"", b"")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"version": 2}, "version 2"),
        ({"words": ("step",)}, "beyond the 1"),
        ({"words": ("step", "a\0")}, "NUL"),
        ({"ranks": GOOD.ranks[:-1]}, "incomplete"),
        ({"sections": b"abc"}, "incomplete"),
        ({"windows": b"\0" * 31}, "not as many"),
        ({"ranks": RANK.pack(1, 1.0, 0.5, 0.5, 0, 1, 1, 3)}, "not as many"),
        ({"seq": -1}, r"at `\$\[3\]`"),
        ({"sent_at": 1e300}, r"at `\$\[4\]`"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(WireError, match=says):
        decode_heartbeat(msgspec.msgpack.encode(replace(GOOD, **wrong)))


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        heartbeat = decode_heartbeat(data)
    except WireError:
        return
    list(read_windows(heartbeat))


def test_times_that_json_does_not_have_become_zero() -> None:
    odd = struct.pack("<IHBx6f", 1, 1, 200, math.nan, math.inf, math.nan, 1.0, 1.0, 1.0)
    heartbeat = replace(GOOD, ranks=RANK.pack(1, math.nan, math.inf, -math.inf, 0, 1, 1, 1), windows=odd)
    (rank,) = apply_heartbeat([RankStatus("j", 0, 0, 1, 1, 5, "step", 1.0)], heartbeat)
    ((told,),) = read_windows(heartbeat)
    assert (rank.at, rank.step_seconds, rank.step_median) == (0.0, 0.0, 0.0)
    assert encode_message(replace(rank, windows=(told,)))
    assert (told.step_s, told.forward_s, told.first) == (0.0, None, 1 << 20)
