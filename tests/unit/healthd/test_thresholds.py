from __future__ import annotations

import msgspec
import pytest
import yaml

from healthd.gpu_monitoring.gpu_check_registry import make_gpu_checks
from healthd.source_monitoring.source_registry import SOURCES
from healthd.thresholds import SHIPPED, ThresholdsError, load_thresholds


class Pressure(msgspec.Struct, forbid_unknown_fields=True):
    memory_full_percent: float
    io_full_percent: float
    raise_after_s: float
    clear_after_s: float


def test_every_check_finds_its_numbers_in_the_shipped_file() -> None:
    thresholds = load_thresholds()
    assert [source.make_check(thresholds) for source in SOURCES]
    assert make_gpu_checks(thresholds)


def test_every_number_has_its_reason() -> None:
    document = yaml.safe_load(SHIPPED.read_text())
    sections = [document["defaults"], *document["skus"].values()]
    bare = [
        f"{name}.{key}"
        for section in sections
        for name, numbers in section.items()
        for key, entry in numbers.items()
        if not (isinstance(entry, dict) and str(entry.get("why", "")).strip())
    ]
    assert not bare, "say why"


def test_a_site_changes_some_and_a_model_its_own() -> None:
    site = {
        "pressure": {"io_full_percent": 70},
        "skus": {"H100": {"pressure": {"io_full_percent": {"value": 80, "why": "ours"}}}},
    }
    thresholds = load_thresholds(site)
    assert thresholds.section("pressure", Pressure).io_full_percent == 70
    assert thresholds.section("pressure", Pressure, "NVIDIA H100 80GB HBM3").io_full_percent == 80
    assert thresholds.section("pressure", Pressure, "NVIDIA H100 80GB HBM3").memory_full_percent == 20


@pytest.mark.parametrize(
    ("site", "words"),
    [
        ({"presure": {}}, "no section 'presure'; there are"),
        ({"pressure": {"io": 3}}, "pressure: no key 'io'; there are"),
        ({"pressure": {"io_full_percent": "many"}}, "io_full_percent: expected a number, got 'many'"),
        ({"pressure": 3}, "expected keys and numbers"),
        ({"skus": {"H100": {"nothing": {}}}}, "H100: no section 'nothing'"),
    ],
)
def test_a_mistake_is_named(site: dict[str, object], words: str) -> None:
    with pytest.raises(ThresholdsError, match=words):
        load_thresholds(site)
