"""An unprivileged process has the real kernel print whole messages of the driver, as its own name and as its file's name.

The deeds are in `forger.c`. Some formats are printed once a boot or rate-limited: what the kernel prints here and now is
believed by nobody, and every format also stands as a record in `kernel_records_with_names.py`.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from healthd.kernel_log.kmsg_device import KmsgDevice
from healthd.samples.kernel_record import KernelRecord
from tests.e2e.healthd_node import Node, eventually, fake_nvml
from vocabulary.clock import SystemClock
from vocabulary.finding import Finding

NOBODY = 65534
DEEDS = ("futex", "mremap", "packet", "remap", "data", "vsyscall", "crash")
NAMES = ("NVRM: Xid: 79, ", "NVRM: Xid(a):79", "SXid(a):20034", "Oops: 0002 [#1]", "EDAC MC0: 1 UE ", "nvidia-nvlink: ")
FILE_NAMES = (
    "NVRM: Xid (PCI:0000:13:00): 79, pid=1, name=x, GPU has fallen off the bus.",
    "x\nNVRM: Xid (PCI:0000:13:00): 79, pid=1, name=x, GPU has fallen off the bus.",
    "a on b (channel:0 failed, GPU is lost, Kernel panic - not syncing: x",
)
MEMORY_BYTES = 8 << 20

pytestmark = [
    pytest.mark.kmsg,
    pytest.mark.skipif(
        os.geteuid() != 0 or not os.access("/dev/kmsg", os.R_OK | os.W_OK), reason="needs root and /dev/kmsg"
    ),
]


class Printed:
    """What the kernel itself (facility 0) prints from now on, read beside healthd."""

    def __init__(self) -> None:
        self._log = KmsgDevice(Path("/dev/kmsg"), "boot", None, SystemClock())
        self._records: list[KernelRecord] = []
        self._read()
        self._records.clear()

    def _read(self) -> None:
        while True:
            batch = self._log.read(1000)
            self._records += batch.records
            if not batch.more:
                return

    def with_text(self, text: str) -> list[KernelRecord]:
        self._read()
        return [record for record in self._records if record.facility == 0 and text in record.text]

    def close(self) -> None:
        self._log.close()


@pytest.fixture
def printed() -> Iterator[Printed]:
    log = Printed()
    yield log
    log.close()


@pytest.fixture(scope="session")
def forger() -> Iterator[Path]:
    """The program, in a folder of its own that everybody may enter."""
    with tempfile.TemporaryDirectory(prefix="forger") as place:
        Path(place).chmod(0o755)
        program = Path(place) / "forger"
        subprocess.run(["cc", "-O0", "-o", program, Path(__file__).with_name("forger.c")], check=True)
        program.chmod(0o755)
        yield program


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A real healthd on the real kernel log, which accepts no injected line."""
    made = Node(tmp_path, fake_nvml().build(tmp_path), accept_injected=False)
    made.start()
    yield made
    made.close()


def forge(program: Path, name: str, deed: str) -> None:
    """As an unprivileged user. How it ends does not matter: some deeds are a crash."""
    subprocess.run([program, name, deed], user=NOBODY, group=NOBODY, extra_groups=[], check=False, timeout=60)


def findings_of_this_run(node: Node) -> list[Finding]:
    """Everything that the node has written down, active or not, after it has read all that was printed so far."""
    mark = f"end of the forging {uuid.uuid4().hex}"

    def has_read() -> bool:
        node.kernel_says(mark)
        return any(mark in line["text"] for line in node.get("/v1/evidence")["kernel_lines"])

    eventually(has_read, "healthd has read everything")
    node.stop()
    with sqlite3.connect(f"file:{node.place}/state/healthd.db?mode=ro", uri=True) as store:
        return [msgspec.json.decode(body, type=Finding) for (body,) in store.execute("select body from findings")]


def require_nobody_fooled(found: list[Finding], *words: str) -> None:
    """A record that shows one of the names became no finding, except as the user's program that it is."""
    assert [f.kind for f in found if f.check in ("xid", "sxid")] == []
    shown = [f for f in found if any(word in str(f.evidence.get("line", "")) for word in words)]
    assert {f.check for f in shown} <= {"oom", "program_crash"}, [f.summary for f in shown]
    assert not any(f.active for f in shown)


def test_a_programs_name_is_no_message_of_the_driver(node: Node, printed: Printed, forger: Path) -> None:
    for name in NAMES:
        for deed in DEEDS:
            forge(forger, name, deed)
    believed = {name: len(printed.with_text(name)) for name in NAMES}
    if not any(believed.values()):
        pytest.skip("this kernel printed none of the names: it is rate-limited, or debug.exception-trace is 0")
    assert any(record.text.startswith(NAMES) for record in printed.with_text("")), "a name begins a record"
    require_nobody_fooled(findings_of_this_run(node), *NAMES)


def test_nor_is_the_name_of_the_file_it_crashes_in(node: Node, printed: Printed, forger: Path) -> None:
    for file_name in FILE_NAMES:
        program = forger.with_name(file_name)
        if not program.exists():
            program.hardlink_to(forger)
        for name in NAMES:
            forge(program, name, "crash")
    if not any(printed.with_text(f" in {file_name[:20]}") for file_name in FILE_NAMES):
        pytest.skip("this kernel printed none of the files: it is rate-limited, or debug.exception-trace is 0")
    require_nobody_fooled(findings_of_this_run(node), *NAMES, *FILE_NAMES)


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with little memory, as Slurm and systemd make for a job; its name is a message as well."""
    name = f"NVRM: Xid (PCI:0000:13:00): 79, x {uuid.uuid4().hex[:8]}"
    for root, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / name
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(MEMORY_BYTES))
        except OSError:
            group.rmdir()
            continue
        yield group
        group.rmdir()
        return
    pytest.skip("no control group with a limit of memory can be made here")


def test_nor_what_the_kernel_prints_when_its_memory_runs_out(
    node: Node, printed: Printed, forger: Path, small_group: Path
) -> None:
    def enter() -> None:
        (small_group / "cgroup.procs").write_text(str(os.getpid()))

    for name in NAMES[:3]:
        enter_and_drop = [
            "setpriv",
            f"--reuid={NOBODY}",
            f"--regid={NOBODY}",
            "--clear-groups",
            str(forger),
            name,
            "memory",
        ]
        done = subprocess.run(enter_and_drop, preexec_fn=enter, check=False, timeout=60)
        assert done.returncode == -9, "the kernel ended it"
    assert printed.with_text(f"{NAMES[0]} invoked oom-killer"), "the name begins the record"
    assert printed.with_text(f"Comm: {NAMES[0]}")
    assert printed.with_text(f"({NAMES[0]}) total-vm")
    require_nobody_fooled(findings_of_this_run(node), *NAMES, small_group.name)
