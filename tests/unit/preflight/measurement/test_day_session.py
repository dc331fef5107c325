"""Sessions on a simulated node, driven by hand: what is measured, what is left out when the time ends, and what follows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from jsonschema import Draft202012Validator

import preflight
from preflight.baseline_files import load_product_table
from preflight.device_comparison.golden_recorder import record_goldens
from preflight.expectations.baseline_learning import learn_baseline
from preflight.expectations.fleet_baseline import FleetComparison
from preflight.expectations.measurement_keys import describe_software_stack
from preflight.expectations.product_table import ProductTable, list_table_faults
from preflight.expectations.result_judgement import Knowledge
from preflight.platform_measurement.day_plan import DayStep
from preflight.platform_measurement.day_records import FILE_NAME, DayDocument, Ending, Stage, schema_text
from preflight.platform_measurement.day_session import OutOfTimeError
from preflight.platform_measurement.day_text import propose_table, render_day
from preflight.report.document_reader import DocumentError, parse_day_document, parse_document
from preflight.results import Document, Verdict
from tests.unit.preflight.measurement.simulated_days import ASTRAY, BLIND, PRODUCT, start_session


def measure(minutes: float = 15.0, **node: Any) -> DayDocument:
    session, _, _ = start_session(minutes, **node)
    session.run_steps()
    return session.build_document("first", Knowledge(table=load_product_table(None)))


@pytest.fixture(scope="module")
def whole() -> DayDocument:
    return measure()


def test_a_whole_session_reaches_every_stage(whole: DayDocument) -> None:
    assert whole.ending is Ending.COMPLETE
    assert [(stage.done, stage.notes) for stage in whole.stages] == [(stage.planned, ()) for stage in whole.stages]
    assert len(whole.gates) == 20
    assert whole.seconds <= 60 * whole.minutes
    assert whole.gates[0].tests["memory_bandwidth"] == 2.0
    assert (whole.product, whole.software["driver"], whole.facts["os"]) == (PRODUCT, "999.1", "X")


def test_every_fault_is_reported_and_missed_ones_are_listed(whole: DayDocument) -> None:
    assert {f"{fault.test}:{fault.fault}" for fault in whole.missed} == {BLIND, ASTRAY}
    by_name = {f"{fault.test}:{fault.fault}": fault for fault in whole.faults}
    found = by_name["memory_pattern:bit_flip"]
    assert (found.found, found.device, found.accused, found.right_device) == (True, "cuda:3", ("cuda:3",), True)
    astray = by_name[ASTRAY]
    assert (astray.found, astray.accused, astray.right_device) == (True, ("cuda:0",), False)
    assert by_name["software:mismatch"].right_device is None
    assert by_name["storage:full"].level == "standard"


def test_scatter_is_measured_between_devices_and_between_repeats(whole: DayDocument) -> None:
    rate = next(each for each in whole.figures if each.figure == "product_rate")
    assert all(len(values) == 20 for values in rate.values.values())
    assert rate.usual == pytest.approx(1000, rel=0.02)
    assert 0.002 < rate.repeat < 0.005
    assert 0.01 < rate.between < 0.03
    together = next(each for each in whole.figures if each.test == "collectives")
    assert (together.joint, together.between, together.repeat) == (True, 0.0, 0.0)


def test_healthy_nodes_with_this_scatter_do_not_fail(whole: DayDocument) -> None:
    assert [(alarms.measured_platform, alarms.failed) for alarms in whole.false_alarms] == [(True, 0), (False, 0)]
    assert all(alarms.nodes == 400 for alarms in whole.false_alarms)


def test_ceilings_rounding_and_goldens_are_collected(whole: DayDocument) -> None:
    (copies,) = whole.ceilings
    assert copies.physical == pytest.approx(4022.8, rel=1e-3)
    assert copies.reached == pytest.approx(3600, rel=0.02)
    assert [(use.setting, use.judge, use.share, use.devices) for use in whole.rounding] == [
        ("bf16 8192", "checksums", 0.08, 4),
        ("bf16 8192", "the Triton matmul", 0.3, 4),
    ]
    assert whole.goldens == {f"{PRODUCT}, sm_999": {"bf16 8192 seed 1": "aaaa", "fp8 8192 seed 1": "bbbb"}}


def test_the_time_is_kept_and_later_stages_say_that_they_were_not_reached() -> None:
    day = measure(2.0)
    assert day.ending is Ending.OUT_OF_TIME
    assert day.seconds <= 120
    told = {stage.stage: (stage.done, stage.notes) for stage in day.stages}
    assert told[Stage.GATES][0] >= 3
    assert told[Stage.FAULTS][0] >= 4
    assert told[Stage.STANDARD] == (0, ("not reached: no time left",))
    assert "not reached: no time left" in render_day(day)


def test_the_first_gate_runs_however_little_time_there_is() -> None:
    day = measure(0.1)
    assert [gate.verdict for gate in day.gates] == [Verdict.PASS]
    assert day.ending is Ending.OUT_OF_TIME


def test_a_run_that_lasts_too_long_is_given_up_between_two_tests() -> None:
    session, node, clock = start_session(3.0)
    steady = session._qualify

    def stuck(step: DayStep) -> Document:
        if step.inject:
            clock.advance(600)
            session.check_time()
        return steady(step)

    session._qualify = stuck
    session.run_steps()
    assert [step.inject for step in node.steps] == [()] * 3
    told = {stage.stage: stage for stage in session.build_document("first", Knowledge(), simulate=False).stages}
    assert "a run was given up" in told[Stage.FAULTS].notes[0]
    with pytest.raises(OutOfTimeError):
        session.check_time()


def test_an_error_of_preflight_costs_one_run_and_is_noted() -> None:
    session, node, _ = start_session(15.0)
    steady = session._qualify

    def broken(step: DayStep) -> Document:
        if step.stage is Stage.ENDINGS:
            raise ValueError("a bug")
        return steady(step)

    session._qualify = broken
    session.run_steps()
    day = session.build_document("first", Knowledge(), simulate=False)
    told = {stage.stage: stage for stage in day.stages}
    assert (told[Stage.ENDINGS].done, told[Stage.ENDINGS].notes) == (0, ("a run failed: ValueError: a bug",))
    assert told[Stage.STANDARD].done == told[Stage.STANDARD].planned
    assert day.ending is Ending.OUT_OF_TIME
    assert node.steps


def test_an_interrupted_session_has_what_was_measured() -> None:
    session, _, _ = start_session(15.0)
    steady = session._qualify
    session._qualify = lambda step: steady(step) if not step.inject else (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        session.run_steps()
    day = session.build_document("first", Knowledge(), simulate=False)
    assert (day.ending, len(day.gates), day.faults, day.false_alarms) == (Ending.INTERRUPTED, 3, (), ())


def test_without_a_device_the_session_ends_after_the_first_gate() -> None:
    day = measure(devices=())
    assert (day.ending, len(day.gates), day.gate, day.figures) == (Ending.NO_DEVICE, 1, None, ())
    assert "the gate found no device to test" in render_day(day)
    assert propose_table(day) == ProductTable()
    with pytest.raises(DocumentError, match="no gate passed"):
        parse_document(msgspec.json.encode(day))


def test_the_shown_file_is_a_product_table_with_the_measured_rates(whole: DayDocument, tmp_path: Path) -> None:
    text = render_day(whole)
    assert "1 not found, 1 found but not on one device" in text
    assert f"{BLIND} (gate): not found, pass" in text
    assert f"{ASTRAY} (gate): fail on cuda:0, injected on cuda:3" in text
    (tmp_path / "products.yaml").write_text(text)
    table = load_product_table(tmp_path / "products.yaml")
    assert list_table_faults(table) == []
    product = next(each for each in table.products if each.product == PRODUCT)
    assert {row.figure for row in product.rows} == {"product_rate", "copy_rate"}
    assert (product.power, product.memory) == (900, 4023)
    assert all(row.worst <= 0.88 * row.usual + 1 for row in product.rows)
    assert yaml.safe_load(text)["version"] == 1


def test_names_from_the_machine_cannot_break_the_table(whole: DayDocument) -> None:
    hostile = msgspec.structs.replace(whole, node="a\nproducts: [1]\x1b[2J")
    assert render_day(hostile).count("\nproducts:") == 1
    assert "\x1b" not in render_day(hostile)


def test_a_day_is_one_node_of_a_baseline_and_does_not_make_the_platform_measured_alone(whole: DayDocument) -> None:
    gate = parse_document(msgspec.json.encode(whole))
    assert gate == whole.gate
    software = describe_software_stack(gate.software)
    days = [
        msgspec.structs.replace(
            gate,
            node=f"node-{i}",
            devices=tuple(msgspec.structs.replace(d, uuid=f"{d.uuid}-{i}") for d in gate.devices),
        )
        for i in range(3)
    ]
    for count, measured in ((1, False), (2, False), (3, True)):
        fleet = FleetComparison(learn_baseline(days[:count]), "judged", software)
        assert fleet.has_measured(PRODUCT) is measured
    assert record_goldens([gate], {}).goldens == whole.goldens


def test_the_published_schema_is_what_the_records_say(whole: DayDocument) -> None:
    published = (Path(preflight.__file__).parent / "schemas" / FILE_NAME).read_text()
    assert published == schema_text(), "write it anew: python -m preflight schema day > the file"
    plain = json.loads(msgspec.json.encode(whole))
    Draft202012Validator(json.loads(published)).validate(plain)
    assert parse_day_document(msgspec.json.encode(whole)) == whole
    with pytest.raises(DocumentError, match="version 9 cannot be read"):
        parse_day_document(msgspec.json.encode(plain | {"version": 9}))
    with pytest.raises(DocumentError, match="not a file of 'preflight day'"):
        parse_day_document(msgspec.json.encode(whole.gate))
