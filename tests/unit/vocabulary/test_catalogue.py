from __future__ import annotations

from pathlib import Path

import pytest

from vocabulary.driver_log.xid_line import KernelEvent, KernelEventKind, parse_live_record
from vocabulary.fault_catalogue.catalogue import Catalogue
from vocabulary.fault_catalogue.catalogue_entry import Advice, Cause
from vocabulary.fault_catalogue.catalogue_file import load_catalogue
from vocabulary.finding import Severity
from vocabulary.hardware.recovery_requests import RECOVERY_REQUESTS

SHIPPED = Path(__file__).parents[3] / "playbooks" / "catalogue" / "xid.yaml"


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue()


def test_every_number_up_to_the_last_known_is_described(catalogue: Catalogue) -> None:
    assert sorted(catalogue.xids) == list(range(1, 177))
    assert all(entry.meaning and entry.mnemonic and entry.sources for entry in catalogue.xids.values())


def test_no_block_stands_twice_in_the_file() -> None:
    headings = [line for line in SHIPPED.read_text().splitlines() if line[:2] == "  " and line[2:-1].isdigit()]
    assert len(headings) == len(set(headings)) == 176


def test_a_number_nobody_described_is_never_fine(catalogue: Catalogue) -> None:
    entry = catalogue.entry(4711)
    assert (entry.code, entry.severity, entry.action) == (4711, Severity.UNCLASSIFIED, Advice.TRIAGE)
    assert catalogue.recovery(99).severity is Severity.UNCLASSIFIED
    assert catalogue.recovery_actions.keys() == RECOVERY_REQUESTS.keys(), "one table of numbers"


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_a_program_s_own_mistake_takes_no_node_out(catalogue: Catalogue, code: int) -> None:
    entry = catalogue.entry(code)
    assert entry.blame is Cause.APPLICATION
    assert entry.severity.rank <= Severity.WARNING.rank


@pytest.mark.parametrize("code", [46, 48, 62, 64, 79, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158])
def test_what_the_vendor_resets_or_restarts_is_fatal(catalogue: Catalogue, code: int) -> None:
    assert catalogue.entry(code).severity is Severity.FATAL


def test_a_vendor_s_blank_is_never_read_as_fine(catalogue: Catalogue) -> None:
    blank = [entry for entry in catalogue.xids.values() if not entry.nvidia_immediate]
    assert {entry.code for entry in blank} == set(range(162, 177))
    assert {entry.code for entry in blank if entry.severity is Severity.INFO} == {162}  # smoothing is back


def test_where_others_act_otherwise_our_choice_is_argued(catalogue: Catalogue) -> None:
    assert {entry.code for entry in catalogue.xids.values() if entry.others and not entry.why} == set()


@pytest.mark.parametrize(
    "codes",
    [
        (32, 38, 43, 44, 48, 51, 63, 65, 68, 69, 92, 94, 108, 109, 110, 119, 120, 121, 136, 142, 143),
        (*range(144, 151), 154, 155, 156, 157, 160, 162, 163, 164, 165, 166, 168, 170),
        (34, 42, 56, 81, 111, 118),  # unused: somebody isolates a node for a display
    ],
)
def test_every_disagreement_we_know_of_is_in_the_file(catalogue: Catalogue, codes: tuple[int, ...]) -> None:
    assert [code for code in codes if not catalogue.entry(code).others] == []


def test_79_is_isolated_at_once_and_its_replacement_planned(catalogue: Catalogue) -> None:
    entry = catalogue.entry(79)
    assert (entry.severity, entry.action, entry.blame) == (Severity.FATAL, Advice.ISOLATE_REPLACE, Cause.PCIE)
    assert {"nvidia", "aws", "gpud"} <= set(entry.others)


def test_the_likeliest_cause_is_one_of_the_causes(catalogue: Catalogue) -> None:
    blamed = [(entry.code, entry.causes) for entry in catalogue.xids.values() if entry.blame not in entry.causes]
    assert [code for code, causes in blamed if causes] == []
    assert {catalogue.entry(code).blame for code, _ in blamed} == {Cause.UNKNOWN}


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("NVRM: Xid (PCI:0000:07:00): 79, x", Severity.FATAL),
        ("NVRM: Xid (PCI:0000:07:00): 63, x", Severity.INFO),
        ("NVRM: Xid (PCI:0000:07:00): 999, x", Severity.UNCLASSIFIED),
        ("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.", Severity.FATAL),
        ("NVRM: Xid (PCI:0000:07:00): 154, GPU recovery action changed from 0x0 (a) to 0x1 (b)", Severity.FATAL),
        ("NVRM: Xid (PCI:0000:07:00): 154, GPU recovery action changed from 0x1 (b) to 0x0 (a)", Severity.INFO),
        ("NVRM: Xid (PCI:0000:07:00): 154, words nobody knows", Severity.UNCLASSIFIED),
        # The word outranks the table, where 12020 is fatal and 12028 is not.
        ("nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 12020, Non-fatal, Link 32 x", Severity.WARNING),
        ("nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 12028, Fatal, Link 32 x", Severity.FATAL),
        ("nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 12020, Data {0x0}", Severity.FATAL),
        ("nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 98765, Data {0x0}", Severity.UNCLASSIFIED),
        # The second line has a digit for the word.
        (
            "nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 12020, Severity 0 Engine instance 32 Sub-engine instance 00",
            Severity.WARNING,
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 12028, Severity 1 Engine instance 32 Sub-engine instance 00",
            Severity.FATAL,
        ),
        # The switch's own controller never says a word.
        ("nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 26006, SOE HALTED", Severity.FATAL),
        ("nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 10005, Thermal slowdown", Severity.WARNING),
    ],
)
def test_severity_of_a_line(catalogue: Catalogue, line: str, severity: Severity) -> None:
    event = parse_live_record(line)
    assert event is not None
    assert catalogue.severity_of(event) is severity


def test_an_event_without_a_code_is_unclassified(catalogue: Catalogue) -> None:
    assert catalogue.severity_of(KernelEvent(kind=KernelEventKind.XID)) is Severity.UNCLASSIFIED
