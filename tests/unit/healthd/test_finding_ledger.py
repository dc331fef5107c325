from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from healthd.findings.facts import Clear, Fact, Raise, Unknown
from healthd.findings.finding_ledger import ACTIVE_MAX, CHANGED_MAX, NOTE_REPEATS_S, NOTES_MAX, FindingLedger
from vocabulary.finding import Finding, Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import Gpu, encode_message


def gpu(number: int, *, named: bool = True) -> Component:
    name = f"GPU-{number}" if named else ""
    return Component(ComponentKind.GPU, name=name, pci=f"0000:{number % 256:02x}:00.0", index=number if named else None)


def xid(code: int = 79, on: int = 3, at: float = 1.0, **more: object) -> Raise:
    base: dict[str, object] = {"severity": Severity.FATAL, "component": gpu(on), "origin": f"b1:{at}", "event": True}
    return Raise(check="xid", code=str(code), summary=f"Xid {code}", at=at, **(base | more))  # type: ignore[arg-type]  # by name


def level(severity: Severity = Severity.ERROR, at: float = 1.0) -> Raise:
    return Raise(check="row_remap", code="pending", component=gpu(1), severity=severity, summary="pending", at=at)


def test_an_event_is_one_finding_and_its_repeats_are_counted() -> None:
    ledger = FindingLedger("n1", "b1")
    ledger.apply([xid(at=1.0)])
    assert ledger.urgent
    ledger.mark_submitted()
    ledger.apply([xid(at=2.0), xid(at=3.0)])
    (finding,) = ledger.active
    assert (finding.count, finding.first_seen, finding.last_seen) == (3, 1.0, 3.0)
    assert list(ledger.changed) == [finding.id]
    assert not ledger.urgent, "a repeat is no news"


def test_a_worse_repeat_is_news() -> None:
    ledger = FindingLedger("n1", "b1")
    ledger.apply([xid(154, severity=Severity.WARNING)])
    ledger.mark_submitted()
    ledger.apply([xid(154, severity=Severity.FATAL, at=2.0), xid(154, severity=Severity.WARNING, at=3.0)])
    (finding,) = ledger.active
    assert (finding.severity, finding.count) == (Severity.FATAL, 3)
    assert ledger.urgent


def test_a_level_said_again_changes_nothing_and_is_cleared_by_its_check() -> None:
    ledger = FindingLedger("n1", "b1")
    ledger.apply([level(at=1.0)])
    ledger.mark_submitted()
    ledger.apply([level(at=2.0)])
    assert not ledger.changed
    ledger.apply([Clear(check="row_remap", code="pending", component=gpu(1), at=3.0, by="the flag is clear")])
    assert ledger.active == ()
    (gone,) = ledger.changed.values()
    assert (gone.active, gone.cleared_at, gone.cleared_by) == (False, 3.0, "the flag is clear")


def test_the_id_is_the_same_after_reading_the_same_line_again() -> None:
    ids = set()
    for _ in range(2):
        ledger = FindingLedger("n1", "b1")
        ledger.apply([xid()])
        ids.add(ledger.active[0].id)
    assert len(ids) == 1


def test_info_is_noted_but_never_active() -> None:
    ledger = FindingLedger("n1", "b1")
    ledger.apply([xid(43, severity=Severity.INFO, at=1.0), xid(43, severity=Severity.INFO, at=2.0)])
    assert ledger.active == ()
    (note,) = ledger.changed.values()
    assert (note.active, note.count) == (False, 2)
    ledger.apply([xid(43, severity=Severity.INFO, at=3.0 + NOTE_REPEATS_S)])
    assert len(ledger.changed) == 2, "much later it is another"


def test_a_gpu_known_by_address_and_later_by_uuid_is_one_gpu() -> None:
    ledger = FindingLedger("n1", "b1")
    ledger.apply([xid(component=gpu(3, named=False))])
    before = ledger.active[0]
    ledger.name_gpus([Gpu(index=3, uuid="GPU-3", pci="0000:03:00.0")])
    ledger.apply([xid(at=2.0)])
    (finding,) = ledger.active
    assert (finding.id, finding.count) == (before.id, 2)
    assert (finding.component.name, finding.component.index) == ("GPU-3", 3)


def test_an_injected_fault_never_mixes_with_a_real_one() -> None:
    ledger = FindingLedger("n1", "b1")
    ledger.apply([xid(at=1.0, injected=True), xid(at=2.0)])
    assert [(f.injected, f.count) for f in ledger.active] == [(True, 1), (False, 1)]


def test_a_proof_says_nothing_of_what_happened_after_it_began() -> None:
    ledger = FindingLedger("n1", "b1")
    ledger.apply([xid(on=1, at=5.0), xid(on=2, at=15.0)])
    ledger.prove(20.0, "preflight o1", until=10.0)
    assert [f.component.index for f in ledger.active] == [2]


def test_proof_for_one_gpu_for_the_node_and_by_a_new_boot() -> None:
    ledger = FindingLedger("n1", "b1")
    ledger.apply([xid(on=1), xid(on=2), level()])
    ledger.prove(5.0, "reset o1", gpu="GPU-1")
    assert {f.component.index for f in ledger.active if f.check == "xid"} == {2}
    ledger.prove(6.0, "preflight o2")
    assert [f.kind for f in ledger.active] == ["row_remap/pending"], "what a reading shows, a reading clears"
    ledger.apply([xid(on=4)])
    again = FindingLedger("n1", "b2", ledger.active)
    again.begin_boot(9.0)
    assert [f.kind for f in again.active] == ["row_remap/pending"]
    assert {f.cleared_by for f in again.changed.values()} == {"boot b2"}
    same = FindingLedger("n1", "b1", ledger.active)
    same.begin_boot(9.0)
    assert len(same.active) == 2


def test_memory_is_bounded_and_says_when_it_is_full() -> None:
    ledger = FindingLedger("n1", "b1")
    for number in range(ACTIVE_MAX + 50):
        component = Component(ComponentKind.GPU, pci=f"{number:04x}:00:00.0")
        ledger.apply([xid(component=component, at=float(number))])
    assert len(ledger.active) == ACTIVE_MAX + 1
    overflow = next(f for f in ledger.active if f.kind == "ledger/overflow")
    assert (overflow.count, overflow.severity) == (50, Severity.ERROR)
    for number in range(CHANGED_MAX + NOTES_MAX):
        component = Component(ComponentKind.RANK, name=str(number))
        ledger.apply([xid(43, severity=Severity.INFO, component=component, at=float(number))])
    assert len(ledger.changed) <= CHANGED_MAX


FACTS = st.builds(
    lambda kind, on, code, injected, severity: (
        Clear(check="xid", code=str(code), component=gpu(on), at=1.0, by="x")
        if kind == 0
        else xid(code, on, injected=injected, severity=severity, event=kind == 1)
    ),
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from([13, 79]),
    st.booleans(),
    st.sampled_from(Severity),
)


@given(st.lists(FACTS, max_size=30), st.integers(0, 30))
def test_a_restart_after_any_write_continues_as_if_there_had_been_none(facts: list[Fact], cut: int) -> None:
    straight = FindingLedger("n1", "b1")
    straight.apply(facts)
    first = FindingLedger("n1", "b1")
    first.apply(facts[:cut])
    written = [msgspec.json.decode(msgspec.json.encode(f), type=Finding) for f in first.active]
    second = FindingLedger("n1", "b1", written)
    second.apply(facts[cut:])
    assert second.active == straight.active


@given(st.lists(FACTS, max_size=30))
def test_what_is_active_is_never_info_and_never_twice(facts: list[Fact]) -> None:
    ledger = FindingLedger("n1", "b1")
    ledger.apply(facts)
    assert all(f.active and f.severity is not Severity.INFO for f in ledger.active)
    places = [(f.check, f.code, f.component.key, f.injected) for f in ledger.active]
    assert len(places) == len(set(places))


any_text = st.text(st.sampled_from("a\xe9\n\ud800\udcc3\udca9\udcff"), max_size=4)


@given(any_text, any_text, any_text)
def test_whatever_a_name_holds_its_finding_can_be_written_and_cleared(name: str, words: str, origin: str) -> None:
    ledger = FindingLedger("n1", "b1")
    component = Component(ComponentKind.RANK, name=name)
    fact = Raise(
        check="c",
        code="1",
        component=component,
        severity=Severity.WARNING,
        summary=words,
        at=1.0,
        origin=origin,
        evidence={words: name, "n": 1},
    )
    ledger.apply_levels("c", [fact], 1.0, "over")
    ledger.apply_levels("c", [fact], 2.0, "over")
    ledger.apply_levels("c", [Unknown("c", "1", component)], 3.0, "over")
    (finding,) = ledger.active
    encode_message(finding)
    ledger.apply([msgspec.structs.replace(fact, event=True)])
    assert ledger.active[0].count == 2
    encode_message(ledger.events.rows)
    ledger.apply([Clear(check="c", code="1", component=component, at=4.0, by=words)])
    assert ledger.active == ()
    encode_message(list(ledger.changed.values()))
