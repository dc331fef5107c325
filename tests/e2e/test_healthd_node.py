"""A healthd process against a kernel log and a driver that misbehave."""

from __future__ import annotations

import json
import os
import random
import resource
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from healthd_node import Node, eventually, kmsg_writable

from healthd.trainer.beacons.beacon import Beacon, RankPlacement

MakeNode = Callable[..., Node]
LOGS = [
    pytest.param("kmsg", marks=[pytest.mark.kmsg, pytest.mark.skipif(not kmsg_writable(), reason="no /dev/kmsg")]),
    "file",
]


@pytest.fixture(params=LOGS)
def node(request: pytest.FixtureRequest, make_node: MakeNode, tmp_path: Path) -> Node:
    return make_node(kernel_log=None if request.param == "kmsg" else tmp_path / "kern.log")


def test_a_kernel_line_becomes_a_durable_finding(node: Node) -> None:
    node.start()
    node.xid(79, gpu=3, pid=42, process="python3")
    finding = eventually(lambda: node.findings().get("xid/79@3"), "the finding")
    assert finding["severity"] == "fatal"
    assert finding["injected"] is True
    assert finding["component"]["pci"] == "0000:13:00.0"
    assert (finding["evidence"]["pid"], finding["evidence"]["process"]) == (42, "python3")
    assert node.verdict()["fit"] is False
    node.kill()
    node.start()
    again = node.findings()
    assert again["xid/79@3"]["id"] == finding["id"]
    assert "count" not in again["xid/79@3"]


def test_no_line_is_lost_and_none_counts_twice_however_often_healthd_is_killed(node: Node) -> None:
    rng = random.Random(20)  # noqa: S311 - the same faults every time
    written: dict[str, int] = {}
    for _ in range(4):
        node.start()
        for _ in range(25):
            code, gpu = rng.choice((48, 74, 79, 95)), rng.randrange(8)
            node.xid(code, gpu)
            written[f"xid/{code}@{gpu}"] = written.get(f"xid/{code}@{gpu}", 0) + 1
        node.kill()  # somewhere in the middle of it
        for code, gpu in ((79, 1), (95, 2)):  # and while nobody looks
            node.xid(code, gpu)
            written[f"xid/{code}@{gpu}"] = written.get(f"xid/{code}@{gpu}", 0) + 1
    node.start()

    def counts() -> dict[str, int]:
        return {kind: finding.get("count", 1) for kind, finding in node.findings().items()}

    eventually(lambda: counts() == written, lambda: f"{written}, but {counts()}")
    node.stop()
    node.start()
    assert counts() == written


def test_only_the_kernel_or_a_marked_line_for_this_node_is_evidence(node: Node) -> None:
    node.start()
    if node.kernel_log is None:
        node.kernel_says("NVRM: Xid (PCI:0000:10:00): 79, pid=1, name=liar, GPU has fallen off the bus.")
    node.xid(79, gpu=1, node="another-node")
    node.kernel_says("\x00\xff garbage, NVRM: Xid (PCI:zz): 9999999999, \\x1b[0m")
    node.kernel_says("NVRM: Xid")
    node.xid(48, gpu=2)
    eventually(lambda: "xid/48@2" in node.findings(), "the line behind the garbage")
    assert set(node.findings()) == {"xid/48@2"}


def test_a_hanging_driver_is_a_fatal_finding_and_stops_nothing_else(make_node: MakeNode, tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    node = make_node(kernel_log=log)
    config = node.config.read_text().replace('"deadline_s": 5', '"deadline_s": 0.5')
    node.config.write_text(config)
    node.start()
    eventually(lambda: node.verdict()["health"] == "healthy", "a first sweep")
    node.gpus("gpus 8", "hang 5")
    hang = eventually(lambda: node.findings().get("nvml/hang@5"), "the hang, and where")
    assert hang["severity"] == "fatal"
    assert hang["evidence"]["call"] == "temperature_c"
    node.xid(79, gpu=5)
    eventually(lambda: "xid/79@5" in node.findings(), "the kernel log, meanwhile")
    assert node.verdict()["health"] == "unhealthy"
    node.gpus("gpus 8")
    eventually(lambda: "nvml/hang@5" not in node.findings(), "a whole sweep clears it")
    assert node.stop() == 0


def test_memory_and_presence_of_gpus(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node(kernel_log=tmp_path / "kern.log")
    node.start()
    eventually(lambda: node.verdict()["health"] == "healthy", "a first sweep")
    node.gpus("gpus 8", "pending.2 1", "failure.4 1", "lost 6")
    expected = {"row_remap/pending@2": "error", "row_remap/failure@4": "fatal", "gpu_presence/lost@6": "fatal"}
    eventually(lambda: {k: f["severity"] for k, f in node.findings().items()} == expected, lambda: str(node.findings()))
    node.gpus("gpus 8")
    eventually(lambda: not node.findings(), "flags that are clear again clear their findings")
    node.kill()
    node.gpus("gpus 7")
    node.start()
    eventually(lambda: "gpu_presence/vanished@7" in node.findings(), "the GPU that was there before")


def test_a_line_that_does_not_prove_itself_acts_once_the_driver_tells_the_same(
    make_node: MakeNode, tmp_path: Path
) -> None:
    node = make_node(kernel_log=tmp_path / "kern.log")
    config = json.loads(node.config.read_text())
    node.config.write_text(json.dumps(config | {"kernel_log": {"path": str(tmp_path / "kern.log")}}))
    node.start()
    eventually(lambda: node.verdict()["health"] == "healthy", "a first sweep")
    node.kernel_says("NVRM: Xid (PCI:0000:13:00): 79, pid=7, name=python3, GPU has fallen off the bus.")
    eventually(lambda: 'code="79"' in node.get("/metrics"), "it is counted")
    assert node.findings() == {}
    assert node.verdict()["fit"] is True
    node.gpus("gpus 8", "event 3 79")
    finding = eventually(lambda: node.findings().get("xid/79@3"), "NVML tells the same")
    assert finding["severity"] == "fatal"
    assert "injected" not in finding
    assert "process" not in finding["evidence"], "the event proves the code, not the rest of the line"


def test_a_corrupt_beacon_page_is_named_and_the_others_are_read(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node(kernel_log=tmp_path / "kern.log")
    node.start()
    beacon = Beacon.create(str(node.beacons), RankPlacement(job="j1", attempt=1, rank=0, world=2, node=node.name))
    (node.beacons / "j1.1.1.beacon").write_bytes(os.urandom(4096))
    (node.beacons / "j1.1.1.beacon").chmod(0o600)
    finding = eventually(lambda: node.findings().get("beacon/corrupt"), "the broken page")
    assert "j1.1.1.beacon" in finding["summary"]
    assert "healthd_trainer_ranks 1.0" in node.get("/metrics")
    (node.beacons / "j1.1.1.beacon").unlink()
    eventually(lambda: not node.findings(), "the page is gone")
    beacon.close()


def test_a_file_name_that_is_no_text_is_named_and_healthd_goes_on(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node(kernel_log=tmp_path / "kern.log")
    node.start()
    page = os.path.join(os.fsencode(node.beacons), b"evil\xff.0.0.beacon")  # noqa: PTH118 - a name in bytes
    os.close(os.open(page, os.O_CREAT, 0o600))
    finding = eventually(lambda: node.findings().get("beacon/corrupt"), lambda: f"the page; its log: {node.log()}")
    assert finding["component"]["name"] == "evil\\xff.0.0.beacon"
    assert "evil\\xff" in finding["summary"]
    assert "healthd_trainer_ranks 0.0" in node.get("/metrics")
    os.unlink(page)  # noqa: PTH108 - same
    eventually(lambda: not node.findings(), "the page is gone")


def test_a_damaged_outbox_is_moved_aside_and_makes_the_node_unfit(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node(kernel_log=tmp_path / "kern.log")
    node.start()
    node.xid(79, gpu=0)
    eventually(lambda: "xid/79@0" in node.findings(), "a finding")
    node.kill()
    database = node.place / "state" / "healthd.db"
    for suffix in ("-wal", "-shm"):
        Path(f"{database}{suffix}").unlink(missing_ok=True)
    database.write_bytes(b"this is no database" * 1000)
    node.start()
    eventually(lambda: "outbox/corrupt" in node.findings(), "it says so")
    assert node.verdict()["fit"] is False
    assert len(list(database.parent.glob("healthd.db.corrupt-*"))) == 1
    eventually(lambda: "xid/79@0" in node.findings(), "the kernel log still has the line, and is read from its start")


def test_one_state_directory_has_one_healthd_and_a_bad_configuration_says_where(
    make_node: MakeNode, tmp_path: Path
) -> None:
    node = make_node(kernel_log=tmp_path / "kern.log")
    node.start()
    first, node.process = node.process, None
    node.socket = tmp_path / "nobody"
    with pytest.raises(AssertionError, match="another healthd has this state_dir"):
        node.start()
    node.process = first
    other = make_node(kernl_log=3)
    with pytest.raises(AssertionError, match=r"kernl_log: no such key; did you mean 'kernel_log'\?"):
        other.start()


def test_findings_survive_in_the_database_itself(node: Node) -> None:
    node.start()
    node.xid(48, gpu=4)
    eventually(lambda: "xid/48@4" in node.findings(), "the finding")
    node.kill()
    with sqlite3.connect(node.place / "state" / "healthd.db") as database:
        bodies = database.execute("select body from findings where active").fetchall()
    database.close()
    assert [json.loads(body)["code"] for (body,) in bodies].count("48") == 1


def test_a_full_disk_is_said_aloud_and_loses_nothing(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node(kernel_log=tmp_path / "kern.log")
    node.start()
    for gpu in range(8):
        node.xid(79, gpu)
    wal = node.place / "state" / "healthd.db-wal"
    eventually(lambda: len(node.findings()) == 8 and wal.stat().st_size > 40_000, "a grown log")
    assert node.process is not None
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    node.xid(48, gpu=1)
    eventually(lambda: {"xid/48@1", "outbox/unwritable"} <= set(node.findings()), "both facts, from memory")
    assert "free some space" in node.findings()["outbox/unwritable"]["summary"]
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    eventually(lambda: "outbox/unwritable" not in node.findings(), "it is written again")
    node.kill()
    node.start()
    eventually(lambda: len(node.findings()) == 9, "all nine, and no longer the complaint")
    assert all("count" not in finding for finding in node.findings().values())


def test_a_crash_on_a_full_disk_loses_nothing_either(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node(kernel_log=tmp_path / "kern.log")
    node.start()
    for gpu in range(8):
        node.xid(79, gpu)
    eventually(lambda: len(node.findings()) == 8, "a grown log")
    assert node.process is not None
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    node.xid(48, gpu=1)
    eventually(lambda: "xid/48@1" in node.findings(), "the fact, from memory")
    node.kill()
    node.start()
    eventually(lambda: "xid/48@1" in node.findings(), "the line is read again")
