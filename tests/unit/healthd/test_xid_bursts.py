from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from healthd.kernel_log.xid_bursts import PLACES_MAX, QUIET_S, BurstPosition, XidBursts


def test_the_first_of_a_burst_is_kept_as_its_cause_and_the_rest_is_counted() -> None:
    bursts = XidBursts()
    told = [bursts.add("gpu3", code, at) for code, at in [("79", 0.0), ("119", 0.1), ("45", 60.0), ("45", 60.1)]]
    assert told == [BurstPosition(1, "79"), BurstPosition(2, "79"), BurstPosition(3, "79"), BurstPosition(4, "79")]


def test_silence_parts_bursts_and_gpus_have_their_own() -> None:
    bursts = XidBursts()
    bursts.add("gpu3", "79", 0.0)
    assert bursts.add("gpu4", "45", 1.0) == BurstPosition(1, "45")
    assert bursts.add("gpu3", "31", QUIET_S + 1) == BurstPosition(1, "31")


@given(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 199), st.floats(-1e9, 1e9)), max_size=400))
def test_any_story_has_places_from_one_and_bounded_memory(story: list[tuple[int, int, float]]) -> None:
    bursts = XidBursts()
    for where, code, at in story:
        assert bursts.add(str(where), str(code), at).position >= 1
    assert len(bursts._open) <= PLACES_MAX
