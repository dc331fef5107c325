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
        ("listen: 15180x", "write HOST:PORT"),
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
