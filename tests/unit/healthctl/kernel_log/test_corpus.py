"""Real-world shapes: what must be read, in every dress, and what must not. What is read is held as golden files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from healthctl.kernel_log.log_line_parser import KINDS, ParsedLine, parse_lines
from healthd.checks.kernel_message_checks import KernelMessageCheck
from healthd.checks.xid_checks import XidCheck
from healthd.kernel_log.message_patterns.pattern_families import FAMILIES
from healthd.kernel_log.record_authenticity import RecordAuthenticator
from healthd.samples.kernel_record import KernelRecord
from vocabulary.fault_catalogue.catalogue_file import load_catalogue

CORPUS = Path(__file__).parents[3] / "golden" / "xid"
GPU_KINDS = ("xid", "sxid", "fallen_off_bus")
LOGS = sorted(path.stem for path in (CORPUS / "logs").glob("*.log"))

DRESSES = """\
[ 1843.308145]_
[ 1843.308145][ T1946]_
[Tue Mar  4 12:00:00 2025]_
kern  :warn  : [ 1843.308145]_
2025-03-04T12:00:00,123456+00:00_
Mar 04 12:00:00 n1 kernel:_
Mar  4 12:00:00 n1 kernel: [ 1843.308145]_
2025-03-04T12:00:00.123456+0000 n1 kernel:_
Tue 2025-03-04 12:00:00 UTC n1 kernel:_
[ 1843.308145] n1 kernel:_
1741089600.123456 n1 kernel:_
<4>1 2025-03-04T12:00:00Z n1 kernel - - -_
4,362,34101472,-,caller=T99;
n1: kern: warning: [2025-03-04T12:00:00.123456789Z]:_
"""
FOREIGN = """\
Mar 04 12:00:00 n1 app[12]:_
Mar  4 12:00:00 n1 app:_
2025-03-04T12:00:00.123456+0000 n1 app[12]:_
Tue 2025-03-04 12:00:00 UTC n1 app.service[12]:_
[ 1843.308145] n1 app[12]:_
user  :warn  : [ 1843.308145]_
12,362,34101472,-;
<12>1 2025-03-04T12:00:00Z n1 kernel - - -_
>_
"""


def lines_of(name: str) -> list[str]:
    return [line for line in (CORPUS / name).read_text().split("\n") if line and not line.startswith("# ")]


def texts() -> list[tuple[str, str]]:
    """(kind, kernel text), as `texts.log` heads them."""
    kind, found = "", []
    for line in (CORPUS / "texts.log").read_text().split("\n"):
        if line.startswith("# -- "):
            kind = line.removeprefix("# -- ")
        elif line and not line.startswith("# "):
            found.append((kind, line))
    return found


def parse(line: str) -> ParsedLine:
    (found,) = parse_lines([line])
    return found


def shown(found: ParsedLine) -> str:
    """One record for a person's eye."""
    code = found.xid if found.xid is not None else found.sxid
    parts = (found.line_no, found.kind, code, found.pci, found.mig, found.pid, found.process, found.recovery_action)
    test = f"{' TEST' if found.injected else ''} = {found.live or 'read offline only'}"
    return f"{' '.join(ascii(part)[1:-1] if isinstance(part, str) else str(part) for part in parts if part not in (None, ''))}{test} | {found.detail[:100]!a}"


def test_the_corpus_is_large() -> None:
    assert len(texts()) + len(lines_of("lines.log")) >= 300
    assert len(lines_of("near_misses.log")) + len(lines_of("unsaid.log")) >= 200


def test_what_is_read_of_each_text(golden: Callable[[str, str], None]) -> None:
    golden("xid/texts.txt", "\n".join(shown(found) for found in parse_lines([text for _, text in texts()])) + "\n")


def test_it_reads_and_explains_whatever_healthd_raises_a_finding_on() -> None:
    witness = RecordAuthenticator("n1", accept_injected=False)
    checks = (XidCheck(witness, load_catalogue()), KernelMessageCheck(witness, FAMILIES))
    lines = [line for line in (CORPUS.parent / "kernel" / "lines.log").read_text().splitlines() if line[:1] != "#"]
    for line in [*lines, *(text for _, text in texts())]:
        fact = next((fact for check in checks if (fact := check.judge(KernelRecord("b", 1, 1.0, 0, line), {}))), None)
        found = parse(line)
        if fact is not None:
            assert found.kind in set(KINDS) - {"none"}, line
            assert found.live == f"{fact.check}/{fact.code}", line
            assert found.meaning or found.kind in GPU_KINDS, line
        else:
            assert found.live == "", line


def test_what_is_read_offline_only_says_so() -> None:
    for line in ("NVRM: Xid:  13, Channel 00000001", "a driver spoke, NVRM: Xid (PCI:0000:07:00): 79, x"):
        found = parse(f"[ 1843.308145] {line}")
        assert (found.kind, found.live) == ("xid", "")


@pytest.mark.parametrize("name", LOGS)
def test_what_is_read_of_a_log(golden: Callable[[str, str], None], name: str) -> None:
    log = (CORPUS / "logs" / f"{name}.log").read_text().split("\n")[:-1]
    found = list(parse_lines(log))
    assert [record.line_no for record in found] == list(range(1, len(log) + 1))
    golden(f"xid/logs/{name}.txt", "\n".join(shown(record) for record in found if record.kind != "none") + "\n")


@pytest.mark.parametrize("dress", DRESSES.splitlines())
def test_a_dress_changes_nothing(dress: str) -> None:
    for kind, text in texts():
        bare, dressed = parse(text), parse(dress.replace("_", " ") + text)
        assert dressed.kind == kind, text
        assert dressed == bare


@pytest.mark.parametrize("dress", FOREIGN.splitlines())
def test_nobody_else_is_believed(dress: str) -> None:
    for _, text in texts():
        assert parse(dress.replace("_", " ") + text).kind == "none", text


@pytest.mark.parametrize("line", lines_of("lines.log"))
def test_no_line_is_missed(line: str) -> None:
    assert parse(line).kind in GPU_KINDS


@pytest.mark.parametrize("line", [*lines_of("near_misses.log"), *lines_of("unsaid.log")])
def test_a_near_miss_is_no_fault_of_a_gpu(line: str) -> None:
    assert parse(line).kind not in GPU_KINDS


@pytest.mark.parametrize("line", lines_of("quiet.log"))
def test_what_is_printed_in_peace_is_nothing(line: str) -> None:
    assert parse(line).kind == "none"
    if line.startswith(("pcieport", "EDAC", "mce: ", "MCE: ", "mlx5", "Modules", "OOM")):
        assert parse("[ 1843.308145] " + line).kind == "none"
