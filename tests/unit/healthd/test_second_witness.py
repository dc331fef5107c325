from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from healthd.checks.xid import XidCheck
from healthd.facts import Moment, Raise
from healthd.samples.kernel import KernelRecord
from healthd.samples.nvml import XidEvent
from healthd.second_witness import WAIT_S, WAITING_MAX, SecondWitness
from healthd.witness import Witness
from vocabulary.catalogue_file import load_catalogue
from vocabulary.wire import Gpu
from vocabulary.xid import format_xid

GPU = Gpu(3, "GPU-3", "0000:3b:00.0")
CHECK = XidCheck(Witness("n1", accept_injected=True), load_catalogue())


def moment(at: float) -> Moment:
    return Moment(1_700_000_000.0 + at, at)


def line(code: int) -> Raise:
    fact = CHECK.judge(KernelRecord("b", 7, 1.0, 0, format_xid(code, GPU.pci)), {GPU.pci: GPU})
    assert fact is not None
    return fact


def event(code: int, at: float, index: int | None = 3) -> XidEvent:
    return XidEvent(at=1_700_000_000.0 + at, index=index, code=code)


def test_an_event_that_follows_its_line_adds_nothing() -> None:
    witness = SecondWitness("b")
    witness.saw_line(line(79), moment(5.0))
    witness.heard_event(event(79, 5.02), {3: GPU}, moment(5.02))
    assert witness.records_due(moment(60)) == []
    assert (witness.heard, witness.alone) == (1, 0)


def test_an_event_whose_line_comes_a_little_later_adds_nothing() -> None:
    witness = SecondWitness("b")
    witness.heard_event(event(79, 5.0), {3: GPU}, moment(5.0))
    assert witness.records_due(moment(5.0 + WAIT_S / 2)) == []
    witness.saw_line(line(79), moment(5.0 + WAIT_S / 2))
    assert witness.records_due(moment(60)) == []


def test_an_event_without_a_line_is_evidence_by_itself() -> None:
    witness = SecondWitness("b")
    witness.saw_line(line(31), moment(5.0))
    witness.heard_event(event(79, 5.0), {3: GPU}, moment(5.0))
    (record,) = witness.records_due(moment(7.0))
    fact = CHECK.judge(record, {GPU.pci: GPU})
    assert fact is not None
    assert (fact.code, fact.component.index, fact.injected) == ("79", 3, False)
    assert fact.origin.startswith("b:nvml:")
    assert "told by the driver" in fact.summary


def test_a_test_fault_in_the_log_is_no_line_of_the_driver() -> None:
    witness = SecondWitness("b")
    marked = KernelRecord("b", 7, 1.0, 1, f"gpu-healthd-inject node=n1: {format_xid(79, GPU.pci)}")
    injected = CHECK.judge(marked, {GPU.pci: GPU})
    assert injected is not None
    witness.saw_line(injected, moment(5.0))
    witness.heard_event(event(79, 5.0), {3: GPU}, moment(5.0))
    assert len(witness.records_due(moment(60))) == 1


def test_an_event_of_a_gpu_nobody_knows_is_only_counted() -> None:
    witness = SecondWitness("b")
    witness.heard_event(event(79, 5.0, index=None), {3: GPU}, moment(5.0))
    assert witness.records_due(moment(60)) == []
    assert witness.heard == 1


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([31, 79]), st.floats(0, 5)), max_size=60))
def test_in_any_order_each_event_is_met_by_a_line_or_told_once(story: list[tuple[bool, int, float]]) -> None:
    witness = SecondWitness("b")
    at, told = 0.0, 0
    for is_line, code, pause in story:
        at += pause
        if is_line:
            witness.saw_line(line(code), moment(at))
        else:
            witness.heard_event(event(code, at), {3: GPU}, moment(at))
        told += len(witness.records_due(moment(at)))
    told += len(witness.records_due(moment(at + 60)))
    assert told == witness.alone <= witness.heard


def test_a_storm_of_events_is_bounded() -> None:
    witness = SecondWitness("b")
    for number in range(2 * WAITING_MAX):
        witness.heard_event(event(number, 1.0), {3: GPU}, moment(1.0))
        witness.saw_line(line(number), moment(1.0))
    assert len(witness.records_due(moment(60))) <= WAITING_MAX
