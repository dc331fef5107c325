"""A real healthd on whole products: every value on the page, every kind of GPU fault found."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from healthd_node import Node, eventually

from tests.nodes.machines import dgx

MakeNode = Callable[..., Node]
# What a check waits for before it speaks is for its own tests; here everything speaks at once.
AT_ONCE = {"raise_after_s": 0, "clear_after_s": 0}
THRESHOLDS = dict.fromkeys(("temperature", "throttle", "nvlink", "pcie_link", "fabric"), AT_ONCE)


def kinds(node: Node) -> dict[str, dict[str, Any]]:
    return {f"{f['check']}/{f['code']}": f for f in node.get("/v1/findings")["findings"]}


def errors(node: Node) -> float:
    found = re.search(r"^healthd_nvml_errors_total (\S+)$", node.get("/metrics"), re.MULTILINE)
    assert found is not None
    return float(found[1])


@pytest.fixture
def quiet(tmp_path: Path) -> Path:
    """A kernel log in which nothing happens."""
    (tmp_path / "kern.log").touch()
    return tmp_path / "kern.log"


@pytest.mark.parametrize(("product", "gpus", "links"), [("h100x8", 8, 18), ("b200x8", 8, 18), ("a100x8", 8, 12)])
def test_a_healthy_product_has_every_value_and_no_finding(
    make_node: MakeNode, quiet: Path, product: str, gpus: int, links: int
) -> None:
    node = make_node(kernel_log=quiet)
    node.gpus(*node.preset(product))
    node.start()
    eventually(
        lambda: node.get("/metrics").count("healthd_nvlink_active{") == gpus * links, lambda: node.get("/metrics")
    )
    page = node.get("/metrics")
    for name in ("temperature_celsius", "memory_size_bytes", "pcie_width_lanes", "ecc_errors_total", "throttled"):
        assert page.count(f"\nhealthd_gpu_{name}{{") % gpus == 0, name
        assert f"\nhealthd_gpu_{name}{{" in page, name
    assert errors(node) == 0
    assert kinds(node) == {}
    assert node.get("/v1/verdict")["health"] == "healthy"


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (["temperature.3 95", "margin.3 -3", "throttle.3 0x48"], "throttle/"),
        (["ecc_uncorrected.3 1"], "ecc/"),
        (["failure.3 1"], "row_remap/failure"),
        (["recovery_action.3 1"], "recovery_action/"),
        (["pcie_width.3 8"], "pcie_link/"),
        (["lost 3"], "gpu_presence/lost"),
    ],
)
def test_a_fault_of_one_gpu_is_found_and_named(make_node: MakeNode, quiet: Path, lines: list[str], kind: str) -> None:
    node = make_node(kernel_log=quiet, thresholds=THRESHOLDS)
    node.gpus(*node.preset("h100x8"))
    node.start()
    eventually(lambda: node.get("/v1/verdict")["health"] == "healthy", lambda: str(kinds(node)))
    node.gpus(*node.preset("h100x8"), *lines)
    found = eventually(
        lambda: [f for name, f in kinds(node).items() if name.startswith(kind)], lambda: f"{kind}: {kinds(node)}"
    )
    assert found[0]["component"]["index"] == 3


def test_an_xid_that_only_the_driver_tells_of_is_found_too(make_node: MakeNode, quiet: Path) -> None:
    node = make_node(kernel_log=quiet)
    node.gpus(*node.preset("h100x8"))
    node.start()
    eventually(lambda: node.get("/v1/verdict")["health"] == "healthy", lambda: str(kinds(node)))
    node.gpus(*node.preset("h100x8"), "event 3 79")
    found = eventually(lambda: kinds(node).get("xid/79"), lambda: str(kinds(node)))
    assert found["component"]["index"] == 3
    assert "reported by the driver" in found["summary"]


def temperatures(node: Node) -> int:
    return int(node.get("/metrics").count("\nhealthd_gpu_temperature_celsius{"))


def test_one_hung_gpu_leaves_the_other_seven_visible_and_is_read_again_when_it_answers(
    make_node: MakeNode, quiet: Path, nvml_library: Path
) -> None:
    node = make_node(kernel_log=quiet, nvml={"library": str(nvml_library), "interval_s": 0.2, "deadline_s": 1})
    node.gpus(*node.preset("h100x8"))
    node.start()
    eventually(lambda: node.get("/v1/verdict")["health"] == "healthy", lambda: str(kinds(node)))
    node.gpus(*node.preset("h100x8"), "hang 3")
    found = eventually(lambda: kinds(node).get("nvml/hang"), lambda: str(kinds(node)))
    assert (found["component"]["index"], found["severity"]) == (3, "fatal")
    eventually(lambda: temperatures(node) == 7, lambda: node.get("/metrics"))
    verdict = node.get("/v1/verdict")
    assert (verdict["health"], verdict["fit"]) == ("unhealthy", False)
    assert "no report from NVML (GPU 3 does not answer)" in verdict["reasons"]
    assert not [kind for kind in kinds(node) if kind.startswith(("gpu_presence/", "gpu_count/"))]
    node.gpus(*node.preset("h100x8"), "temperature.5 95", "margin.5 -3", "throttle.5 0x48")
    eventually(lambda: [kind for kind in kinds(node) if kind.startswith("throttle/")], "the others are still judged")
    eventually(lambda: temperatures(node) == 8, lambda: str(kinds(node)))
    eventually(lambda: "nvml/hang" not in kinds(node), lambda: str(kinds(node)))


def test_a_fresh_node_with_fewer_gpus_than_configured_is_not_fit(make_node: MakeNode, quiet: Path) -> None:
    node = make_node(kernel_log=quiet, gpus={"expected": 8})
    node.gpus(*node.preset("h100x8"), "gpus 7")
    node.start()
    found = eventually(lambda: kinds(node).get("gpu_count/below_configured"), lambda: str(kinds(node)))
    assert "7 of 8" in found["summary"]
    assert node.get("/v1/verdict")["fit"] is False


def test_a_gpu_that_comes_back_on_the_bus_is_enumerated_without_a_restart(
    make_node: MakeNode, quiet: Path, tmp_path: Path
) -> None:
    machine = dgx.build(tmp_path / "machine")
    slot = machine / "sys/bus/pci/devices" / dgx.gpu_address(7)
    device = slot.readlink()
    slot.unlink()
    node = make_node(kernel_log=quiet, sources={"pcie": {"every_s": 0.5}})
    script = str(Path(__file__).with_name("healthd_on_machine.py"))
    node.command = [sys.executable, script, str(node.config), str(machine)]
    node.gpus(*node.preset("h100x8"), "gpus 7")
    node.start()
    eventually(lambda: temperatures(node) == 7, lambda: node.get("/metrics"))
    slot.symlink_to(device)
    missing = eventually(lambda: kinds(node).get("gpu_count/not_enumerated"), lambda: str(kinds(node)))
    assert dgx.gpu_address(7) in missing["summary"]
    slot.unlink()
    eventually(lambda: "gpu_count/not_enumerated" not in kinds(node), lambda: str(kinds(node)))
    node.gpus(*node.preset("h100x8"))  # this driver counts its GPUs only when it is initialised
    slot.symlink_to(device)
    eventually(lambda: temperatures(node) == 8, lambda: str(kinds(node)))
    assert not [kind for kind in kinds(node) if kind.startswith("gpu_count/")]
