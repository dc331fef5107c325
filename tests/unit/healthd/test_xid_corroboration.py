from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.checks.xid_checks import XidCheck
from healthd.findings.facts import Moment, Raise, make_gpu_component
from healthd.kernel_log.record_authenticity import RecordAuthenticator
from healthd.kernel_log.xid_corroboration import (
    CONFIRM_WITHIN_S,
    DETAIL,
    MEMORY_S,
    UNCONFIRMED_MAX,
    WAIT_S,
    WAITING_MAX,
    NodeDevices,
    XidCorroborator,
)
from healthd.samples.kernel_record import KernelRecord
from healthd.samples.nvml import XidEvent
from vocabulary.driver_log.injected_line import mark_injected_line
from vocabulary.driver_log.xid_line import format_xid
from vocabulary.fault_catalogue.catalogue_file import load_catalogue
from vocabulary.finding import Severity
from vocabulary.messages.wire import Gpu

GPU = Gpu(3, "GPU-3", "0000:3b:00.0")
OURS = NodeDevices(known={GPU.pci})
ELSEWHERE = "0000:99:00.0"
CHECK = XidCheck(RecordAuthenticator("n1", accept_injected=True), load_catalogue())


def moment(at: float) -> Moment:
    return Moment(1_700_000_000.0 + at, at)


def line(code: int, pci: str = GPU.pci) -> Raise:
    fact = CHECK.judge(KernelRecord("b", 7, 1.0, 0, format_xid(code, pci)), {GPU.pci: GPU})
    assert fact is not None
    return fact


def take_line(witness: XidCorroborator, code: int, at: float) -> None:
    """A line about this node's GPU, as the kernel wrote it, acts by itself."""
    fact = line(code)
    assert witness.corroborate_line(fact, OURS, moment(at), attested=True) is fact


def event(code: int, at: float, index: int | None = 3) -> XidEvent:
    return XidEvent(at=1_700_000_000.0 + at, index=index, code=code)


def test_an_event_that_follows_its_line_adds_nothing() -> None:
    witness = XidCorroborator("b")
    take_line(witness, 79, 5.0)
    witness.apply_event(event(79, 5.02), {3: GPU}, OURS, moment(5.02))
    assert witness.records_due(moment(60)) == []
    assert (witness.heard, witness.alone) == (1, 0)


def test_an_event_whose_line_comes_a_little_later_adds_nothing() -> None:
    witness = XidCorroborator("b")
    witness.apply_event(event(79, 5.0), {3: GPU}, OURS, moment(5.0))
    assert witness.records_due(moment(5.0 + WAIT_S / 2)) == []
    take_line(witness, 79, 5.0 + WAIT_S / 2)
    assert witness.records_due(moment(60)) == []


def test_an_event_without_a_line_is_evidence_by_itself() -> None:
    witness = XidCorroborator("b")
    take_line(witness, 31, 5.0)
    witness.apply_event(event(79, 5.0), {3: GPU}, OURS, moment(5.0))
    (record,) = witness.records_due(moment(7.0))
    fact = CHECK.judge(record, {GPU.pci: GPU})
    assert fact is not None
    assert (fact.code, fact.component.index, fact.injected) == ("79", 3, False)
    assert fact.origin.startswith("b:nvml:")
    assert "reported by the driver" in fact.summary


def test_a_test_fault_in_the_log_is_no_line_of_the_driver() -> None:
    witness = XidCorroborator("b")
    marked = KernelRecord("b", 7, 1.0, 1, f"gpu-healthd-inject node=n1: {format_xid(79, GPU.pci)}")
    injected = CHECK.judge(marked, {GPU.pci: GPU})
    assert injected is not None
    witness.corroborate_line(injected, OURS, moment(5.0), attested=True)
    witness.apply_event(event(79, 5.0), {3: GPU}, OURS, moment(5.0))
    assert len(witness.records_due(moment(60))) == 1


def test_an_event_of_a_gpu_nobody_knows_is_only_counted() -> None:
    witness = XidCorroborator("b")
    witness.apply_event(event(79, 5.0, index=None), {3: GPU}, OURS, moment(5.0))
    assert witness.records_due(moment(60)) == []
    assert witness.heard == 1


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([31, 79]), st.floats(0, 5)), max_size=60))
def test_in_any_order_each_event_is_met_by_a_line_or_told_once(story: list[tuple[bool, int, float]]) -> None:
    witness = XidCorroborator("b")
    at, told = 0.0, 0
    for is_line, code, pause in story:
        at += pause
        if is_line:
            take_line(witness, code, at)
        else:
            witness.apply_event(event(code, at), {3: GPU}, OURS, moment(at))
        told += len(witness.records_due(moment(at)))
    told += len(witness.records_due(moment(at + 60)))
    assert told == witness.alone <= witness.heard


def test_a_storm_of_events_is_bounded() -> None:
    witness = XidCorroborator("b")
    for number in range(2 * WAITING_MAX):
        witness.apply_event(event(number, 1.0), {3: GPU}, OURS, moment(1.0))
        take_line(witness, number, 1.0)
    assert len(witness._lines) == len(witness._events) == WAITING_MAX, "what is remembered is bounded too"
    assert len(witness.records_due(moment(60))) <= WAITING_MAX


def weigh(witness: XidCorroborator, fact: Raise, devices: NodeDevices = OURS, *, attested: bool = True) -> Raise:
    return witness.corroborate_line(fact, devices, moment(5.0), attested=attested)


@pytest.mark.parametrize(("pci", "attested"), [(ELSEWHERE, True), (GPU.pci, False)])
def test_a_line_that_does_not_prove_itself_is_recorded_and_does_not_act(pci: str, *, attested: bool) -> None:
    witness = XidCorroborator("b")
    fact = weigh(witness, line(79, pci), attested=attested)
    assert (fact.severity, fact.event, fact.code) == (Severity.INFO, True, "79")
    assert fact.evidence["unconfirmed"]
    assert "recorded only" in fact.summary
    assert witness.confirm_by_state(OURS, moment(6.0)) == [], "the GPU is well"


def test_the_drivers_event_confirms_it_once_and_about_the_gpu_that_it_names() -> None:
    witness, pci = XidCorroborator("b"), ELSEWHERE
    weigh(witness, line(79, pci))
    assert witness.apply_event(event(31, 5.1), {3: GPU}, OURS, moment(5.1)) == [], "another Xid says nothing of it"
    (fact,) = witness.apply_event(event(79, 5.2), {3: GPU}, OURS, moment(5.2))
    assert (fact.severity, fact.component, fact.event) == (Severity.FATAL, make_gpu_component(GPU), False)
    assert fact.origin != line(79, pci).origin
    assert witness.apply_event(event(79, 5.3), {3: GPU}, OURS, moment(5.3)) == []
    assert [record.text for record in witness.records_due(moment(60))] == [format_xid(31, GPU.pci, detail=DETAIL)]


def test_an_event_just_before_the_line_confirms_it_too() -> None:
    witness = XidCorroborator("b")
    witness.apply_event(event(79, 4.9), {3: GPU}, OURS, moment(4.9))
    assert weigh(witness, line(79, ELSEWHERE)).severity is Severity.FATAL
    assert weigh(witness, line(31, ELSEWHERE)).severity is Severity.INFO


@pytest.mark.parametrize("event_at", [4.9, 5.2])
def test_an_event_does_not_confirm_a_line_that_is_not_attested(event_at: float) -> None:
    """It proves the code and not the text; it speaks for itself."""
    witness, heard = XidCorroborator("b"), event(79, event_at)
    if event_at < 5.0:
        witness.apply_event(heard, {3: GPU}, OURS, moment(event_at))
    assert weigh(witness, line(79), attested=False).severity is Severity.INFO
    if event_at > 5.0:
        assert witness.apply_event(heard, {3: GPU}, OURS, moment(event_at)) == []
    assert [record.text for record in witness.records_due(moment(60))] == [format_xid(79, GPU.pci, detail=DETAIL)]


def test_an_event_of_one_gpu_does_not_confirm_a_line_of_another_that_became_known_meanwhile() -> None:
    witness = XidCorroborator("b")
    assert weigh(witness, line(79, ELSEWHERE)).severity is Severity.INFO
    both = NodeDevices(known={GPU.pci, ELSEWHERE})
    assert witness.apply_event(event(79, 5.2), {3: GPU}, both, moment(5.2)) == []


def test_an_event_counts_for_a_line_only_a_moment_later_and_from_the_last_time_on() -> None:
    witness = XidCorroborator("b")
    witness.apply_event(event(79, 5.0 - MEMORY_S - 1), {3: GPU}, OURS, moment(5.0 - MEMORY_S - 1))
    assert weigh(witness, line(79, ELSEWHERE)).severity is Severity.INFO
    witness.apply_event(event(79, 4.9), {3: GPU}, OURS, moment(4.9))
    assert weigh(witness, line(79, ELSEWHERE)).severity is Severity.FATAL


def test_a_line_of_long_ago_is_none_of_an_event() -> None:
    witness = XidCorroborator("b")
    take_line(witness, 79, 5.0)
    witness.apply_event(event(79, 6.0 + MEMORY_S), {3: GPU}, OURS, moment(6.0 + MEMORY_S))
    assert len(witness.records_due(moment(60))) == 1


@pytest.mark.parametrize(
    "devices",
    [
        NodeDevices(known={GPU.pci}, driver_silent=True),
        NodeDevices(known={GPU.pci}, troubled={GPU.pci}),
    ],
)
def test_a_gpu_in_trouble_confirms_it_before_or_after(devices: NodeDevices) -> None:
    witness = XidCorroborator("b")
    assert weigh(witness, line(79, ELSEWHERE), devices).severity is Severity.FATAL
    assert weigh(witness, line(79, ELSEWHERE)).severity is Severity.INFO
    (fact,) = witness.confirm_by_state(devices, moment(40.0))
    assert (fact.severity, fact.event, fact.provable) == (Severity.FATAL, False, True)
    assert not witness.wants_state


def test_a_gpu_fell_off_the_bus_and_the_line_does_not_say_which() -> None:
    witness = XidCorroborator("b")
    record = KernelRecord("b", 7, 1.0, 0, "NVRM: GPU has fallen off the bus.")
    fact = CHECK.judge(record, {GPU.pci: GPU})
    assert fact is not None
    assert weigh(witness, fact).severity is Severity.INFO
    (confirmed,) = witness.apply_event(event(79, 5.2), {3: GPU}, OURS, moment(5.2))
    assert (confirmed.code, confirmed.severity, confirmed.component) == (
        "fallen_off_bus",
        Severity.FATAL,
        make_gpu_component(GPU),
    )


def test_trouble_of_another_gpu_and_a_node_without_gpus_confirm_nothing() -> None:
    witness = XidCorroborator("b")
    assert weigh(witness, line(79), NodeDevices({GPU.pci, ELSEWHERE}, {ELSEWHERE}), attested=False).severity is (
        Severity.INFO
    )
    assert weigh(witness, line(79, ELSEWHERE), NodeDevices(driver_silent=True)).severity is Severity.INFO


def test_a_device_that_is_found_later_confirms_an_attested_line_only() -> None:
    witness, found = XidCorroborator("b"), NodeDevices(known={GPU.pci, ELSEWHERE})
    weigh(witness, line(79, ELSEWHERE), attested=True)
    weigh(witness, line(62, ELSEWHERE), attested=False)
    assert [fact.code for fact in witness.confirm_by_state(found, moment(7.0))] == ["79"]


def test_what_nothing_confirms_is_forgotten_in_time_and_in_number() -> None:
    witness = XidCorroborator("b")
    for _ in range(2 * UNCONFIRMED_MAX):
        weigh(witness, line(79, ELSEWHERE))
    late = NodeDevices(known={GPU.pci}, driver_silent=True)
    assert len(witness.confirm_by_state(late, moment(6.0))) == UNCONFIRMED_MAX
    weigh(witness, line(79, ELSEWHERE))
    assert witness.confirm_by_state(OURS, moment(6.0 + CONFIRM_WITHIN_S)) == []
    assert witness.confirm_by_state(late, moment(7.0 + CONFIRM_WITHIN_S)) == []


def test_a_drill_needs_no_second_witness() -> None:
    marked = KernelRecord("b", 7, 1.0, 1, mark_injected_line("n1", format_xid(79, ELSEWHERE)))
    fact = CHECK.judge(marked, {GPU.pci: GPU})
    assert fact is not None
    assert weigh(XidCorroborator("b"), fact, attested=False) == fact


def test_lines_that_are_only_recorded_silence_no_event() -> None:
    witness = XidCorroborator("b")
    weigh(witness, line(79), attested=False)
    for _ in range(UNCONFIRMED_MAX):  # they drive the first one out
        weigh(witness, line(62), attested=False)
    assert witness.apply_event(event(79, 5.1), {3: GPU}, OURS, moment(5.1)) == []
    assert [record.text for record in witness.records_due(moment(8.0))] == [format_xid(79, GPU.pci, detail=DETAIL)]


def test_a_fall_off_the_bus_and_its_event_are_one_fault() -> None:
    witness = XidCorroborator("b")
    record = KernelRecord("b", 7, 1.0, 0, f"NVRM: GPU {GPU.pci}: GPU has fallen off the bus.")
    fact = CHECK.judge(record, {GPU.pci: GPU})
    assert fact is not None
    weigh(witness, fact)
    witness.apply_event(event(79, 5.1), {3: GPU}, OURS, moment(5.1))
    assert witness.records_due(moment(8.0)) == []
