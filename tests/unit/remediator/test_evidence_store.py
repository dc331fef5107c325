"""Bundles at the centre: kept once, read back, made room for; and what is no bundle never grows."""

from __future__ import annotations

import gzip
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.api.evidence_handlers import decompress_bounded
from remediator.api.handler_context import Refusal
from remediator.model.journal_records import Action, Incident, NodeRecord
from remediator.model.views_evidence import EvidenceEntry
from remediator.state.cluster_state import ClusterState
from remediator.store.evidence_store import EvidenceStore
from remediator.store.journal import Journal

NOW = 1_700_000_000.0


@pytest.fixture
def journal(database: str) -> Journal:
    opened = Journal(database)
    opened.prepare()
    return opened


def entry(order: str = "o1", at: float = NOW, size: int = 3, incident: str = "i1") -> EvidenceEntry:
    return EvidenceEntry(order, incident, "n1", at, size)


def test_the_first_bundle_for_an_order_stays(journal: Journal) -> None:
    store = EvidenceStore(journal.engine)
    assert store.keep(entry(), b"one") is True
    assert store.keep(entry(at=NOW + 5), b"two") is False
    assert store.content("i1", "o1") == b"one"
    assert store.of_incident("i1") == [entry()]
    journal.close()


def test_bundles_are_found_by_their_incident_oldest_first(journal: Journal) -> None:
    store = EvidenceStore(journal.engine)
    for order, at in (("o2", NOW + 2), ("o1", NOW + 1)):
        store.keep(entry(order, at), b"abc")
    store.keep(entry("o3", incident="i2"), b"abc")
    assert [found.order for found in store.of_incident("i1")] == ["o1", "o2"]
    assert store.of_incident("none") == []
    assert store.content("i2", "o1") is None, "a bundle is not to be had by another incident's name"
    journal.close()


def test_the_oldest_make_room_never_the_newest(journal: Journal) -> None:
    store = EvidenceStore(journal.engine, bytes_max=100)
    for number in range(12):
        store.keep(entry(f"o{number:02}", NOW + number, 10), b"x" * 10)
    assert [found.order for found in store.of_incident("i1")] == [f"o{n:02}" for n in range(2, 12)]
    store.keep(entry("large", NOW - 1, 1000), b"x" * 1000)
    assert [found.order for found in store.of_incident("i1")] == ["large"]
    journal.close()


def test_an_order_is_known_also_after_its_incident(journal: Journal) -> None:
    epoch = journal.lead()
    state = ClusterState()
    state.put_node(NodeRecord(node="n1", since=NOW))
    state.put_incident(Incident(id="i1", node="n1", title="t", opened_at=NOW))
    action = Action(
        id="o1", incident="i1", decision="d", node="n1", verb="collect_evidence", planned_at=NOW, deadline=NOW + 1
    )
    state.put_action(action)
    journal.commit([], state.take_changes(), epoch)
    store = EvidenceStore(journal.engine)
    assert store.ordered_by("o1") == action
    assert store.ordered_by("o2") is None
    journal.close()


@given(st.binary(max_size=5000))
def test_what_was_gzipped_comes_back(content: bytes) -> None:
    assert decompress_bounded(gzip.compress(content), 5000) == content


@given(st.binary(max_size=200))
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(Refusal):
        decompress_bounded(content, 1000)


WHOLE = gzip.compress(os.urandom(100))


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{}", 400),
        (WHOLE[:-1], 400),
        (WHOLE[:-8] + b"\0" * 8, 400),
        (WHOLE + b"x", 400),
        (WHOLE + WHOLE, 400),
        (gzip.compress(b"\0" * 1001), 413),
        (gzip.compress(b"\0" * (64 << 20)), 413),
    ],
    ids=["nothing", "plain", "cut", "checksum", "tail", "two", "long", "bomb"],
)
def test_damage_and_bombs_are_refused(content: bytes, status: int) -> None:
    with pytest.raises(Refusal) as refusal:
        decompress_bounded(content, 1000)
    assert refusal.value.status == status
