"""A real healthd on whole products: every value on the page, every kind of GPU fault found."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from healthd_node import Node, eventually

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
    assert "told by the driver" in found["summary"]
