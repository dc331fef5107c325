"""What the controller's configuration says of Slurm, tried before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from remediator.config import ConfigError, load_config


def configured(tmp_path: Path, conf: Path, kind: str = "slurm") -> Path:
    path = tmp_path / "r.yaml"
    path.write_text(f"scheduler: {{kind: {kind}, slurm: {{conf: {conf}}}}}\n")
    return path


def test_a_slurm_conf_that_is_named_must_be_there(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    for why in ("No such file or directory", "Is a directory"):
        with pytest.raises(ConfigError) as error:
            load_config(configured(tmp_path, conf))
        assert f"r.yaml: scheduler.slurm.conf: {conf} cannot be read ({why})" in str(error.value)
        conf.mkdir(exist_ok=True)
    conf.rmdir()
    conf.touch()
    assert load_config(configured(tmp_path, conf)).scheduler.slurm.conf == str(conf)


def test_where_slurm_is_not_asked_its_conf_may_be_missing(tmp_path: Path) -> None:
    assert load_config(configured(tmp_path, tmp_path / "slurm.conf", "local")).scheduler.kind == "local"
