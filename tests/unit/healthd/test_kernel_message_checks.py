from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from healthd.checks.kernel_message_checks import KernelMessageCheck
from healthd.findings.facts import Clear, Fact, Raise
from healthd.findings.finding_ledger import FindingLedger
from healthd.kernel_log.message_patterns.pattern_families import FAMILIES
from healthd.kernel_log.record_authenticity import RecordAuthenticator
from healthd.samples.kernel_record import KernelRecord
from vocabulary.driver_log.injected_line import mark_injected_line
from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind
from vocabulary.messages.wire import Gpu

GPUS = {"0000:13:00.0": Gpu(3, "GPU-3", "0000:13:00.0")}
CORPUS = Path(__file__).parents[2] / "golden" / "kernel" / "lines.log"
LINES = [line for line in CORPUS.read_text().splitlines() if not line.startswith("#")]


def judge(text: str, *, facility: int = 0, accept: bool = True) -> Fact | None:
    check = KernelMessageCheck(RecordAuthenticator("n1", accept_injected=accept), FAMILIES)
    return check.judge(KernelRecord("b", 7, 1.0, facility, text), GPUS)


def told(fact: Fact | None) -> str:
    if fact is None:
        return "-"
    what = f"{fact.check}/{fact.code}  {fact.component}"
    if isinstance(fact, Clear):
        return f"over    {what}"
    evidence = {name: value for name, value in fact.evidence.items() if name != "line"}
    return f"{fact.severity.value:7} {what}  {evidence or ''}".rstrip()


def test_every_line_of_the_corpus(golden: Callable[[str, str], None]) -> None:
    golden("kernel/facts.txt", "".join(f"{told(judge(line))}\n    {line}\n" for line in LINES))


def test_the_corpus_is_large_and_uses_every_form() -> None:
    assert len(LINES) >= 150
    used = {(fact.check, fact.code) for line in LINES if (fact := judge(line)) is not None}
    assert {(family.check, form.code) for family in FAMILIES for form in family.forms} == used


def test_a_gpu_is_named_where_its_address_is_known() -> None:
    fact = judge("NVRM: GPU 0000:13:00.0: RmInitAdapter failed! (0x26:0x56:1463)")
    assert isinstance(fact, Raise)
    assert (fact.component.kind, fact.component.index, fact.severity) == (ComponentKind.GPU, 3, Severity.FATAL)


def test_only_the_kernel_is_a_witness() -> None:
    line = "Kernel panic - not syncing: Fatal exception"
    assert judge(line) is not None
    assert judge(line, facility=1) is None


@pytest.mark.parametrize("accept", [True, False])
def test_a_marked_test_counts_only_where_it_may(accept: bool) -> None:  # noqa: FBT001 - a parameter of the test
    fact = judge(
        mark_injected_line("n1", "nvme nvme1: controller is down; will reset: CSTS=0xff"), facility=1, accept=accept
    )
    assert (fact is not None) is accept
    assert fact is None or (isinstance(fact, Raise) and fact.injected)
    assert judge(mark_injected_line("n2", "nvme nvme1: controller is down; will reset: CSTS=0xff"), facility=1) is None


def test_a_server_that_answers_again_ends_what_was_said_and_a_test_does_not() -> None:
    ledger = FindingLedger("n1", "b")
    silent, ok = "nfs: server fs1 not responding, still trying", "nfs: server fs1 OK"
    for text, active in ((silent, 1), (mark_injected_line("n1", ok), 1), (ok, 0)):
        fact = judge(text)
        ledger.apply([fact] if fact is not None else [])
        assert len([finding for finding in ledger.active if not finding.injected]) == active


def test_forms_of_info_never_make_a_node_worse() -> None:
    ledger = FindingLedger("n1", "b")
    for line in LINES:
        fact = judge(line)
        if isinstance(fact, Raise) and fact.severity is Severity.INFO:
            ledger.apply([fact])
    assert ledger.active == ()
    assert ledger.changed


@given(st.text(max_size=3000))
def test_any_text_is_a_fact_or_none(text: str) -> None:
    judge(text)


@given(st.text(max_size=200), st.sampled_from(LINES), st.text(max_size=2000))
@example("x" * 5000, LINES[0], "")
def test_whatever_stands_around_a_line_what_is_kept_is_bounded(before: str, line: str, after: str) -> None:
    fact = judge(before + line + after)
    if isinstance(fact, Raise):
        assert len(fact.summary) <= 300
        assert sum(len(str(value)) for value in fact.evidence.values()) <= 1500


@given(st.sampled_from(LINES), st.data())
def test_a_line_that_was_cut_or_garbled_does_no_harm(line: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(line)))
    judge(line[:at])
    judge(line[:at] + data.draw(st.characters()) + line[at + 1 :])
