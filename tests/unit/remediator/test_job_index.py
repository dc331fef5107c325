"""The index of jobs says what the records of the nodes say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remediator.model.journal_records import JobRef, NodeRecord
from remediator.state.job_index import JobIndex

ATTEMPTS = [JobRef(job, attempt) for job in ("a", "b") for attempt in (1, 2)]
jobs = st.lists(st.sampled_from(ATTEMPTS), unique=True, max_size=3).map(tuple)


@given(st.lists(st.tuples(st.sampled_from(["n1", "n2", "n3"]), jobs), max_size=20))
def test_it_says_what_the_records_say(moves: list[tuple[str, tuple[JobRef, ...]]]) -> None:
    index, held = JobIndex(), dict[str, tuple[JobRef, ...]]()
    for node, now in moves:
        before = held.get(node, ())
        assert index.put(before, NodeRecord(node=node, jobs=now)) == bool(set(now) - set(before))
        held[node] = now
    for ref in ATTEMPTS:
        there = sorted(node for node, refs in held.items() if ref in refs)
        assert (index.nodes_with(ref), index.width_of(ref)) == (there, len(there))
    for job in ("a", "b"):
        assert index.nodes_of(job) == sorted(n for n, refs in held.items() if any(ref.job == job for ref in refs))
