"""Faults that are pretended: what a real healthd makes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
from healthd_node import Node, eventually

from healthctl.main import cli


def inject(node: Node, *arguments: str) -> None:
    result = click.testing.CliRunner().invoke(cli, ["inject", *arguments, "--config", str(node.config)])
    assert result.exit_code == 0, result.output


def kinds(node: Node) -> dict[str, dict[str, Any]]:
    return {f"{f['check']}/{f['code']}": f for f in node.get("/v1/findings")["findings"]}


def test_a_pretended_fault_is_found_marked_and_ends(make_node: Callable[..., Node], tmp_path: Path) -> None:
    node = make_node(kernel_log=tmp_path / "kern.log")
    (tmp_path / "kern.log").touch()
    node.start()
    inject(node, "ecc", "--gpu", "3", "--failed")
    found = eventually(lambda: kinds(node).get("row_remap/failure"), lambda: str(kinds(node)))
    assert (found["injected"], found["component"]["index"]) == (True, 3)
    inject(node, "clear")
    eventually(lambda: "row_remap/failure" not in kinds(node), lambda: str(kinds(node)))


def test_pretended_hangs_really_hang_and_are_come_over(make_node: Callable[..., Node], tmp_path: Path) -> None:
    node = make_node(
        kernel_log=tmp_path / "kern.log",
        source_deadline_s=1,
    )
    (tmp_path / "kern.log").touch()
    node.start()
    eventually(lambda: 'gpu="2"' in node.get("/metrics"), "the GPUs")  # one that nobody knows yet has no number
    inject(node, "nvml-hang", "--gpu", "2")
    inject(node, "hang", "--source", "pressure")
    found = eventually(lambda: kinds(node).get("nvml/hang"), lambda: str(kinds(node)))
    assert (found["injected"], found["component"].get("index")) == (True, 2)
    eventually(lambda: "nvml/hang" not in kinds(node), lambda: str(kinds(node)))
    found = eventually(lambda: kinds(node).get("source/hung"), lambda: str(kinds(node)))
    assert (found["injected"], found["component"]["name"]) == (True, "pressure")
