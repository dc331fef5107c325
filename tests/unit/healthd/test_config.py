from __future__ import annotations

from pathlib import Path

import pytest

from healthd.config import Config, ConfigError, load_node_config, parse_node_config
from vocabulary.order import OrderKind


def test_an_empty_file_means_the_defaults() -> None:
    assert parse_node_config("", "c.yaml") == Config()


def test_a_full_file() -> None:
    text = """
    node: gpu-17
    state_dir: /s
    run_dir: /r
    beacon_dir: /b
    listen: "[::1]:0"
    accept_injected: true
    kernel_log: {path: /var/log/kern.log}
    nvml: {library: /lib/nvml, interval_s: 2, deadline_s: 0.5}
    remediator: {url: "http://r:1", token_file: /t, report_interval_s: 3}
    orders: {allow: [abort], reset_gpu_command: [reset, "{gpu}"], preflight_command: [pf]}
    """
    config = parse_node_config(text, "c.yaml")
    assert config.listen_address == ("::1", 0)
    assert config.kernel_log.path == Path("/var/log/kern.log")
    assert config.orders.allow == {OrderKind.ABORT}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nod: x", "c.yaml: nod: no such key; did you mean 'node'?"),
        ("nvml: {deadlines: 3}", "c.yaml: nvml.deadlines: no such key; did you mean 'deadline_s'?"),
        ("zzz: 1", "zzz: no such key; valid are accept_injected, beacon_dir"),
        ("nvml: {interval_s: 0}", "c.yaml: nvml.interval_s: Expected `float` > 0.0"),
        ("orders: {allow: [reset_gp]}", "orders.allow[0]: 'reset_gp' is not valid; did you mean 'reset_gpu'?"),
        ("kernel_log: {source: jurnal}", "kernel_log.source: 'jurnal' is not valid; did you mean 'journal'?"),
        ("orders: {preflight_command: []}", "orders.preflight_command: Expected `array` of length >= 1"),
        ("listen: somewhere", "listen: 'somewhere' is not HOST:PORT"),
        ("listen: 'h:70000'", "listen: 'h:70000' is not HOST:PORT"),
        ("node: 'a b'", "not a node name: 'a b'"),
        ("remediator: {url: 'ftp://x', token_file: /t}", "remediator: url: 'ftp://x' must begin with http://"),
        ("remediator: {url: 'http://x'}", "remediator: token_file: needed with url"),
        ("state_dir: 3", "state_dir: expected a path, got 3"),
        ("- 1", "c.yaml: Expected `object`, got `array`"),
        ("node: [", "c.yaml: not YAML"),
    ],
)
def test_a_mistake_is_named_with_file_key_and_nearest_word(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_node_config(text, "c.yaml")
    assert words in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read: No such file"):
        load_node_config(tmp_path / "nowhere.yaml")
