from __future__ import annotations

from pathlib import Path

import pytest

from remediator.config import ConfigError, load_config


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    return path


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, ""))
    assert config.mode.value == "recommend"
    assert config.playbook_paths[0].name == "default.yaml"
    assert config.playbook_paths[0].exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("clustr: x", "did you mean 'cluster'?"),
        ("budget: {isolated_mx: 3}", "did you mean 'isolated_max'?"),
        ("mode: actt", "Invalid enum value 'actt'"),
        ("mode: active", "mode: Invalid enum value 'active'; known: observe, recommend, approve, act"),
        (
            "alerts: {receivers: {ops: {kind: slak}}}",
            "alerts.receivers.ops.kind: Invalid value 'slak'; known: webhook, ",
        ),
        (
            "alerts: {receivers: {a: {kind: slack, mode: x}}}",
            "alerts.receivers.a: unknown field `mode`; known: ca_file",
        ),
        (
            "alerts: {routes: [{receivers: [], severty: x}]}",
            "alerts.routes[0]: unknown field `severty`; did you mean 'sev",
        ),
        ("alerts: {page: [eror]}", "alerts.page[0]: Invalid enum value 'eror'; known: unclassified, info"),
        ("alerts: {routes: [{receivers: [], kinds: [tiket]}]}", "Invalid enum value 'tiket'; known: alert, ticket"),
        ("scheduler: {mode: act}", "scheduler: unknown field `mode`; known: kind, kubernetes"),
        ("scheduler: {poll_s: -1}", "Expected `float` > 0.0 - at `$.scheduler.poll_s`"),
        ("scheduler: {poll_busy_s: 0}", "Expected `float` > 0.0 - at `$.scheduler.poll_busy_s`"),
        ("probation_s: -5", "Expected `float` >= 0.0 - at `$.probation_s`"),
        ("listen: 15180x", "write HOST:PORT"),
        ("listen: 127.0.0.1:99999", "ports are 1 to 65535"),
        ("listen: 127.0.0.1:0", "ports are 1 to 65535"),
        ("scheduler: {kind: pbs}", "known: slurm, kubernetes, local"),
        ("a: [", "while parsing"),
        ("- 1", "Expected `object`"),
    ],
)
def test_a_mistake_is_named_with_its_file(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(write(tmp_path, text))
    assert "r.yaml" in str(error.value)
    assert says in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        load_config(tmp_path / "none.yaml")
