from __future__ import annotations

from healthd.checks.xid_checks import XidCheck
from healthd.kernel_log.nvswitch_severity import SAME_EVENT_S, SwitchSeverityTracker
from healthd.kernel_log.record_authenticity import RecordAuthenticator
from healthd.samples.kernel_record import KernelRecord
from vocabulary.fault_catalogue.catalogue_file import load_catalogue
from vocabulary.finding import Severity

HEAD = "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Non-fatal, Link 30 LTSSM Fault Up"
DATA = "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Data {0x80000000, 0x00000000}"


def severities(*lines: tuple[float, str]) -> list[Severity]:
    check = XidCheck(RecordAuthenticator("n1", accept_injected=False), load_catalogue())
    found = [
        check.judge(KernelRecord(source="b", position=i, at=at, facility=0, text=text), {})
        for i, (at, text) in enumerate(lines)
    ]
    return [raised.severity for raised in found if raised is not None]


def test_the_data_lines_are_as_bad_as_the_head_line_said() -> None:
    assert severities((1.0, HEAD), (1.1, DATA)) == [Severity.WARNING, Severity.WARNING]


def test_data_lines_without_a_head_are_judged_by_the_table() -> None:
    assert severities((1.0, DATA)) == [load_catalogue().sxid_entry(20034).severity]
    assert severities((1.0, HEAD), (1.1 + SAME_EVENT_S, DATA))[1] is not Severity.WARNING


def test_words_are_kept_apart_by_switch_and_code() -> None:
    words = SwitchSeverityTracker()
    assert words.severity("a", 1, Severity.FATAL, 0.0) is Severity.FATAL
    assert words.severity("b", 1, None, 0.0) is None
    assert words.severity("a", 2, None, 0.0) is None
    assert words.severity("a", 1, None, 0.5) is Severity.FATAL
