"""What holds for every source, also for those that are still to be written."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from healthd.collectors.machine_access import MachineAccess
from healthd.findings.facts import Moment
from healthd.source_child import read_source
from healthd.source_monitoring.source_registry import SOURCES, Source
from healthd.thresholds import load_thresholds
from tests.nodes.machines import dgx

UNITS = ("seconds", "bytes", "ratio", "celsius", "lanes", "bits_per_second", "bytes_per_second", "transfers_per_second")
COUNTS = ("error_lines", "processes", "processes_waiting", "processes_zombie", "inodes", "inodes_free", "critical_bits")
NOT_THERE = frozenset({"clock", "dcgm", "services"})  # a folder has no clock, and runs no programs
STATES = ("up", "active", "wanted", "watched", "synchronized", "read_only")

each = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)


def read(source: Source, root: Path) -> dict[str, Any]:
    """A look, and what the wire makes of it."""
    collector = importlib.import_module(f"healthd.collectors.{source.name}")
    answer: dict[str, Any] = json.loads(
        json.dumps(read_source(source.name, getattr(collector, f"read_{source.name}"), MachineAccess(str(root)), {}))
    )
    return answer


@each
def test_a_machine_without_anything_is_a_state_not_a_failure(source: Source, tmp_path: Path) -> None:
    answer = read(source, tmp_path)
    assert answer["state"] in ("absent", "present"), answer
    assert answer["state"] == "present" or answer["reason"]


@each
def test_a_sample_survives_the_way_to_the_daemon_and_is_judged(source: Source, tmp_path: Path) -> None:
    answer = read(source, dgx.build(tmp_path))
    assert (answer["state"] == "absent") == (source.name in NOT_THERE), answer
    if source.name in NOT_THERE:
        return
    sample = msgspec.json.decode(json.dumps(answer["sample"]), type=source.sample)
    check = source.make_check(load_thresholds())
    for at in (0.0, 60.0, 6000.0):
        assert check.judge(sample, Moment(1_700_000_000.0 + at, at)) is not None


@each
def test_metrics_are_named_as_prometheus_wants_it(source: Source) -> None:
    for family in source.metrics:
        for metric in family.metrics:
            name = metric.name
            assert re.fullmatch(r"healthd_[a-z][a-z0-9_]*[a-z0-9]", name), name
            assert all(re.fullmatch(r"[a-z][a-z0-9_]*", label) for label in (*family.labels, *dict(metric.labels)))
            assert (metric.kind == "counter") == name.endswith("_total"), f"{name}: counters, and only they, end so"
            assert (metric.kind == "info") == name.endswith("_info"), name
            assert metric.kind != "gauge" or name.endswith(UNITS + COUNTS + STATES), f"{name}: which unit?"


def test_every_name_has_one_meaning_and_its_help_once() -> None:
    kinds: dict[str, tuple[str, str]] = {}
    helps: dict[str, list[str]] = {}
    for source in SOURCES:
        for family in source.metrics:
            for metric in family.metrics:
                assert kinds.setdefault(metric.name, (source.name, metric.kind)) == (source.name, metric.kind)
                helps.setdefault(metric.name, []).append(metric.help)
    assert [name for name, texts in helps.items() if not texts[0].endswith(".")] == []


@each
def test_its_words_are_there_for_the_doctor_and_it_has_a_test(source: Source) -> None:
    assert all((source.reads, source.cost, source.when_absent))
    assert importlib.import_module(f"healthd.collectors.{source.name}").__doc__
    assert (Path(__file__).parent / f"test_{source.name}.py").exists()


def test_no_two_sources_speak_with_one_voice() -> None:
    for names in ([source.name for source in SOURCES], [source.check_name for source in SOURCES]):
        assert len(names) == len(set(names))


def test_the_child_that_reads_them_loads_the_standard_library_only() -> None:
    """One import of the codec in one collector was a fifth of its memory."""
    names = [f"healthd.collectors.{source.name}" for source in SOURCES]
    code = f"import importlib, sys, healthd.source_child; [importlib.import_module(name) for name in {names}]; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "healthd.collectors.pcie" in loaded
    assert not {"msgspec", "yaml", "click", "prometheus_client"} & set(loaded)
