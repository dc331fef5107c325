"""A user of the node writes to /dev/kmsg what the driver would say: from the record's bytes to who is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.kernel_log.record_authenticity import RecordAuthenticator
from healthd.samples.kernel_record import KernelRecord
from vocabulary.driver_log.injected_line import mark_injected_line
from vocabulary.driver_log.kmsg_record import KmsgError, parse_record
from vocabulary.driver_log.xid_line import KernelEvent, parse_live_record

LINE = b"NVRM: Xid (PCI:0000:3b:00): 79, pid=42, name=python3, GPU has fallen off the bus."
USER = 1 << 3 | 4


def believed(data: bytes, *, accept_injected: bool = False) -> KernelEvent | None:
    """What a node makes of one record of its kernel log."""
    try:
        record = parse_record(data)
    except KmsgError:
        return None
    sample = KernelRecord("boot", record.seq, 1.0, record.facility, record.text)
    testimony = RecordAuthenticator("n1", accept_injected=accept_injected).hear(sample)
    return parse_live_record(testimony.text) if testimony is not None else None


def test_the_kernel_is_believed() -> None:
    event = believed(b"4,1,2,-;" + LINE + b"\n")
    assert event is not None
    assert event.code == 79


@pytest.mark.parametrize(
    "forged",
    [
        b"%d,1,2,-;%b\n" % (USER, LINE),
        b"%d,1,2,c;%b\n" % (USER, LINE),  # as if it went on with the kernel's own line
        b"%d,1,2,+;%b\n" % (USER, LINE),
        b"%d,1,2,-;x\\x0a%b\n" % (USER, LINE),
        b"%d,1,2,-;\\x3c4\\x3e%b\n" % (USER, LINE),  # the prefix by which a writer chooses the level
        b"%d,1,2,-;<0>%b\n" % (USER, LINE),
        b"%d,1,2,-;harmless\n SUBSYSTEM=pci\n %b\n" % (USER, LINE),  # among the record's own fields
        b"%d,1,2,-;4,9,9,-;%b\n" % (USER, LINE),  # a record within a record
        b"%d,1,2,-,caller=T1;%b\n" % (23 << 3, LINE),  # the highest facility
        b"%d,1,2,-;%b\n" % (1 << 11, LINE),  # beyond every facility, where eight bits would read 0
        b"-4,1,2,-;" + LINE,
        b"+4,1,2,-;" + LINE,
        b" 4,1,2,-;" + LINE,
    ],
)
def test_nobody_else_is(forged: bytes) -> None:
    assert believed(forged) is None


@pytest.mark.parametrize(
    "quoted",
    [
        b'overlayfs: unrecognized mount option "%b" or missing value',
        b"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=%b,mems_allowed=0,oom_memcg=/a,task=b",
        b"python3 invoked oom-killer: gfp_mask=0x1, order=0, oom_score_adj=0,cpuset=a %b,mems_allowed=0",
        b"traps: a[7] trap int3 ip:4 sp:7 error:0 in %b[4+1]",
        b"audit: type=1400 comm=%b",
        b"cgroup: fork rejected by pids controller in /user.slice/%b",
    ],
)
def test_nor_is_the_kernel_where_it_only_repeats_a_users_words(quoted: bytes) -> None:
    assert believed(b"4,1,2,-;" + quoted % LINE + b"\n") is None


def test_a_mark_that_the_kernel_repeats_hides_no_record() -> None:
    shown = LINE.replace(b"python3", b"x") + b" " + mark_injected_line("n2", "x").encode()
    for accept in (True, False):
        event = believed(b"4,1,2,-;" + shown + b"\n", accept_injected=accept)
        assert event is not None
        assert event.code == 79


def test_a_test_fault_needs_the_nodes_leave_and_its_name() -> None:
    told = mark_injected_line("n1", LINE.decode()).encode()
    record = b"%d,1,2,-;%b\n" % (USER, told)
    assert believed(record) is None
    assert believed(record, accept_injected=True) is not None
    other = b"%d,1,2,-;%b\n" % (USER, mark_injected_line("n2", LINE.decode()).encode())
    assert believed(other, accept_injected=True) is None


@given(st.binary(max_size=40).filter(lambda data: b"\n" not in data), st.integers(8, 255), st.sampled_from(b"-c+"))
def test_whatever_stands_around_it_no_other_facility_passes(around: bytes, prio: int, flag: int) -> None:
    assert believed(b"%d,1,2,%c;%b%b%b\n" % (prio, flag, around, LINE, around)) is None
