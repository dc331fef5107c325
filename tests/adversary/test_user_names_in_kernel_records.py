"""Whatever users call their programs, files and control groups, the kernel's records say nothing that they would not say else."""

from __future__ import annotations

import fcntl
import os
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from healthd.checks.kernel_message_checks import KernelMessageCheck
from healthd.checks.xid_checks import XidCheck
from healthd.findings.facts import Raise
from healthd.kernel_log.kmsg_device import KmsgDevice
from healthd.kernel_log.message_patterns.pattern_families import FAMILIES
from healthd.kernel_log.record_authenticity import RecordAuthenticator
from healthd.samples.kernel_record import KernelRecord
from tests.adversary.kernel_records_with_names import PRINTED, Printed
from vocabulary.clock import SystemClock
from vocabulary.driver_log.xid_line import LIVE_FORMS, NAME_BYTES_MAX, parse_live_record
from vocabulary.fault_catalogue.catalogue_file import load_catalogue
from vocabulary.finding import Severity

# The tree of a pattern, which says how long its matches are; it moved with Python 3.11.
sre, sre_parser = (
    import_module(name)
    for name in (("re._constants", "re._parser") if sys.version_info >= (3, 11) else ("sre_constants", "sre_parse"))
)
WITNESS = RecordAuthenticator("n1", accept_injected=False)
XIDS, MESSAGES = XidCheck(WITNESS, load_catalogue()), KernelMessageCheck(WITNESS, FAMILIES)
CORPUS = Path(__file__).parents[1] / "golden"
FREE_MAX = 255

FORMS = {f"vocabulary.driver_log.xid_line {number}": pattern for number, (pattern, _) in enumerate(LIVE_FORMS)} | {
    f"{family.check}/{form.code} {number}": form.pattern
    for family in FAMILIES
    if not family.about_programs
    for number, form in enumerate(family.forms)
}


def judged(text: str, facility: int = 0) -> tuple[str, str, Severity | None] | None:
    """What a node makes of a record."""
    record = KernelRecord("boot", 7, 1.0, facility, text)
    fact = XIDS.judge(record, {}) or MESSAGES.judge(record, {})
    if fact is None:
        return None
    return fact.check, fact.code, fact.severity if isinstance(fact, Raise) else None


def printed(form: Printed, comm: str, free: str) -> str:
    return form.record.replace("{comm}", comm[:NAME_BYTES_MAX]).replace("{free}", free[:FREE_MAX])


INNOCENT = {form: judged(printed(form, "python3", "a")) for form in PRINTED}


def require_no_news(form: Printed, comm: str, free: str) -> None:
    record = printed(form, comm, free)
    found = judged(record)
    if found is not None and (found[0] == "program_crash" or found[:2] == ("nvidia_driver", "nvlink")):
        assert found[2] is Severity.INFO, record
    else:
        assert found in (None, INNOCENT[form]), f"{form.source}: {record}"


def examples() -> Iterator[tuple[str, str]]:
    """For each form, one record that it matches."""
    lines = [
        line
        for file in ("kernel/lines.log", "xid/texts.log", "xid/lines.log")
        for line in (CORPUS / file).read_text().splitlines()
    ]
    for name, pattern in FORMS.items():
        found = [line for line in lines if pattern.match(line)]
        assert found, f"{name}: the corpus has no line of this form"
        yield name, min(found, key=len)


EXAMPLES = dict(examples())


@pytest.mark.parametrize("name", FORMS)
def test_no_form_fits_into_a_tasks_name(name: str) -> None:
    tree = sre_parser.parse(FORMS[name].pattern)
    assert tree.getwidth()[0] > NAME_BYTES_MAX, "its shortest match"
    assert certain_width(tree)[0] > NAME_BYTES_MAX, "what is certain before it may be any text"
    assert not FORMS[name].pattern.startswith(("^", ".*"))


def certain_width(tree: Any) -> tuple[int, bool]:
    """How many characters stand at least before the first that may be any, and whether there is none such."""
    width = 0
    for operation, argument in tree:
        inner, whole = width_of(operation, argument)
        width += inner
        if not whole:
            return width, False
    return width, True


def width_of(operation: Any, argument: Any) -> tuple[int, bool]:
    """The same of one part of a pattern."""
    if operation is sre.LITERAL:
        return 1, True
    if operation is sre.IN:
        return (0, False) if argument[0] == (sre.NEGATE, None) else (1, True)
    if operation in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
        return 0, True
    if operation is sre.SUBPATTERN:
        return certain_width(argument[3])
    if operation is sre.BRANCH:
        widths, whole = zip(*(certain_width(branch) for branch in argument[1]), strict=True)
        return min(widths), all(whole)
    if operation in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        least, _, repeated = argument
        inner, one_whole = certain_width(repeated)
        return (least * inner, True) if one_whole else (inner if least else 0, False)
    return 0, False


@pytest.mark.parametrize("form", PRINTED, ids=lambda form: form.source)
def test_no_record_that_shows_a_name_is_read_as_what_the_name_says(form: Printed) -> None:
    for text in EXAMPLES.values():
        starts = [0, *(match.start() for match in re.finditer(r"(?<=\W)\w", text))]
        for length in range(1, NAME_BYTES_MAX + 1) if "{comm}" in form.record else (1,):
            rests = starts if "{free}" in form.record else starts[:1]
            for start in {*rests, min(length, len(text))}:
                require_no_news(form, text[:length], text[start:])


@pytest.mark.parametrize(
    "text", ["NVRM: Xid: 79, ", "NVRM: Xid(a):79", "SXid(a):20034", "Oops: 0002 [#1]", "nvidia-nvlink: "]
)
@pytest.mark.parametrize("form", PRINTED, ids=lambda form: form.source)
def test_names_that_were_whole_messages_once(form: Printed, text: str) -> None:
    require_no_news(form, text, text)
    require_no_news(form, text, "GPU is lost fail error timeout, on x (GSP timed out [#1] SMP")


names = st.one_of(st.text(max_size=FREE_MAX), st.sampled_from(sorted(EXAMPLES)).map(EXAMPLES.__getitem__))


@given(st.sampled_from(PRINTED), names, names, st.integers(0, 40), st.integers(0, 40))
@example(PRINTED[12], "EDAC MC0: 1 UE ", "a on b (channel:0", 0, 0)
@example(PRINTED[12], "EXT4-fs (sda): ", "Remounting filesystem read-only", 0, 0)
@example(PRINTED[12], "XFS (a): ", "Filesystem has been shut down", 0, 0)
@example(PRINTED[12], "Oops: x", "[#1]", 0, 0)
@example(PRINTED[12], "nvidia-peermem ", "a:1 ERROR b", 0, 0)
@example(PRINTED[25], "nvme nvme0: I/O", "a timeout, b", 0, 0)
@example(PRINTED[25], "Internal error:", "[#1] SMP", 0, 0)
@example(PRINTED[25], "INFO: task x", "y:7 blocked for more than 120 seconds", 0, 0)
@example(PRINTED[19], "kernel BUG at x", "", 0, 0)
@example(PRINTED[23], "nvidia-nvlink", "", 0, 0)
def test_nor_any_name_that_chance_finds(form: Printed, comm: str, free: str, skip: int, skip_free: int) -> None:
    require_no_news(form, comm[skip:], free[skip_free:])


@given(st.sampled_from(sorted(EXAMPLES)), st.text(min_size=1, max_size=40))
def test_whatever_stands_before_a_drivers_words_they_are_not_read(name: str, before: str) -> None:
    whole = judged(EXAMPLES[name])
    assert judged(f"x{before} {EXAMPLES[name]}") in (None, judged(f"x{before} x"))
    assert whole is not None


class Ring:
    """A kernel log of our own that a reader opens by its path: each write is one record."""

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
        fcntl.fcntl(self._write_end, fcntl.F_SETPIPE_SZ, 1 << 20)  # a page a record
        self.path = Path(f"/proc/self/fd/{self.read_end}")

    def says(self, record: str) -> None:
        os.write(self._write_end, record.encode())

    def close(self) -> None:
        os.close(self.read_end)
        os.close(self._write_end)


XID = "NVRM: Xid (PCI:0000:13:00): 79, pid=7, name=x, GPU has fallen off the bus."
BEFORE_A_NAME = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset="


def attested(records: list[str]) -> list[bool]:
    """Which of these records of /dev/kmsg count as begun by the kernel."""
    ring = Ring()
    for record in records:
        ring.says(record + "\n")
    log = KmsgDevice(ring.path, "boot", None, SystemClock())
    found = [record.attested for record in log.read(len(records) + 1).records]
    log.close()
    ring.close()
    return found


def test_a_control_groups_name_that_begins_a_continuation_record_needs_a_second_witness() -> None:
    records = [
        f"4,1,1,c;{XID}",  # the driver continues what nobody began: every record of its is so
        f"6,2,2,-;{BEFORE_A_NAME}",
        "6,3,3,-;docker0: port 1(veth2e8c6f1) entered blocking state",  # another CPU prints in between
        f"6,4,4,c;{XID},mems_allowed=0",
        f"4,5,5,-;{XID}",
        f"4,6,6,+;{XID}",  # before Linux 4.9: the rest of a line
    ]
    assert attested(records) == [True, True, True, False, True, False]


def test_filling_the_log_in_between_ends_no_doubt() -> None:
    filler = [f"3,{seq},{seq},-;tmpfs: Unknown parameter 'a'" for seq in range(3, 203)]
    assert not attested([f"6,2,2,-;{BEFORE_A_NAME}", *filler, f"6,999,{59 * 60 * 10**6},c;{XID},mems_allowed=0"])[-1]
    assert attested([f"6,2,2,-;{BEFORE_A_NAME}", f"6,999,{61 * 60 * 10**6},c;{XID}"])[-1]


@pytest.mark.parametrize(
    "text",
    [
        "[  21060] 65534 21060     6261     5468     3778     1690         0    94208        0             0 x,cpuset=",
        "cgroup: fork rejected by pids controller in /user.slice/a,cpuset=",
        "cgroup: fork rejected by pids controller in /a: page allocation failure: order:1,cpuset=",
        "Memory cgroup stats for a=:",
    ],
)
def test_nobody_can_have_the_drivers_records_doubted(text: str) -> None:
    assert attested([f"6,1,1,-;{text}", f"4,2,2,c;{XID}"]) == [True, True]


@pytest.mark.parametrize(
    "packet",
    [
        " IN= OUT=lo MAC=00:00 SRC=127.0.0.1 DST=127.0.0.1 LEN=84",
        "IN=eth0 OUT= SRC=::1 DST=::1",
        " IN=lo OUT=lo MAC source = 0",
    ],
)
def test_a_firewall_rules_prefix_is_not_the_drivers_word(packet: str) -> None:
    assert attested([f"4,1,1,-;{XID}{packet}"]) == [False]


@pytest.mark.parametrize(
    "text",
    [
        "EXT4-fs error (device loop3): ext4_validate_block_bitmap:390: comm x: bg 0: bad block bitmap checksum",
        "EXT4-fs (loop3): Remounting filesystem read-only",
        "Aborting journal on device loop3-8.",
        "XFS (loop3): Metadata CRC error detected at xfs_agf_read_verify",
        "I/O error, dev loop3, sector 8 op 0x0:(READ) flags 0x0",
        "Buffer I/O error on dev fd0, logical block 0, async page read",
        "md: Disk failure on loop3, disabling device.",
    ],
)
def test_an_image_that_a_user_damaged_costs_the_node_nothing(text: str) -> None:
    found = judged(text)
    assert found is not None
    assert found[2] is Severity.INFO


def test_only_xid_154_tells_what_recovery_needs() -> None:
    words = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    events = [parse_live_record(f"NVRM: Xid (PCI:0000:3b:00): {code}, {words}") for code in (154, 31)]
    assert [event.recovery_action for event in events if event is not None] == [2, None]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("EDAC MC0: 1 UE Multi-bit ECC on unknown memory (node:0 card:1 module:71 page:0x1)", "unknown memory"),
        ("EDAC MC0: 1 UE memory read error on P0 Node0 DIMM A1 (channel:0 slot:0 page:0x1)", "P0 Node0 DIMM A1"),
        ("BTRFS error (device vda3 state EA): Transaction aborted (error -5)", "vda3"),
        ("BTRFS: error (device dm-2: state EA) in __btrfs_free_extent:3070: errno=-22 unknown", "dm-2"),
        ("BTRFS info (device sda: state EA): forced readonly", "sda"),
    ],
)
def test_forms_of_real_kernels_that_name_their_place_otherwise(text: str, place: str) -> None:
    fact = MESSAGES.judge(KernelRecord("boot", 7, 1.0, 0, text), {})
    assert fact is not None
    assert fact.component.name == place
