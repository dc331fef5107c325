"""Every change of a file is found, whatever its checksum's algorithm, in pieces and in parallel; what cannot be checked is no damage."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from healthd.trainer.checkpoint import Checkpoints
from healthd.trainer.checkpoint_storage import checkpoint_files, checksums
from healthd.trainer.checkpoint_storage.background_task import ParallelCall
from healthd.trainer.checkpoint_storage.checkpoint_files import (
    CheckpointError,
    FileWriter,
    measure_file,
    verify_checkpoint,
)
from healthd.trainer.checkpoint_storage.checksums import (
    Checksum,
    ChecksumUnavailableError,
    choose_algorithm,
    choose_common_algorithm,
)

OLD = Path(__file__).parents[3] / "golden" / "healthd" / "checkpoint-sha256"
ALGORITHMS = st.sampled_from(["blake3", "sha256"])
BLOCK = 16
BLOCKS = st.lists(st.binary(min_size=BLOCK, max_size=BLOCK), min_size=2, max_size=9, unique=True)


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Iterator[None]:
    """Several pieces and early syncs for a few bytes as for gigabytes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(checksums, "_READ_BYTES", 24)
        patched.setattr(checkpoint_files, "_SLICE_BYTES", 20)
        patched.setattr(checkpoint_files, "_SYNC_AHEAD_BYTES", 32)
        yield


@pytest.fixture
def without_blake3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "blake3", None)


def save(root: Path, content: list[bytes], algorithm: str | None = None, step: int = 7) -> Path:
    checkpoints = Checkpoints(root)
    writer = FileWriter(checkpoints.open(step), algorithm=algorithm)
    with writer.create("weights") as stream:
        for each in content:
            stream.write(each)
    return checkpoints.complete(step, 1, writer.entries)


def rewrite_manifest(path: Path, change: Callable[[dict[str, object]], None]) -> None:
    document = json.loads((path / "manifest.json").read_text())
    change(document["files"]["weights"])
    (path / "manifest.json").write_text(json.dumps(document))


@given(content=st.lists(st.binary(max_size=70), max_size=5), algorithm=ALGORITHMS)
def test_what_is_written_in_pieces_has_the_checksum_of_the_whole(
    content: list[bytes], algorithm: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("c")
    manifest = verify_checkpoint(path := save(root, content, algorithm))

    whole = b"".join(content)
    expected = {"blake3": blake3, "sha256": hashlib.sha256}[algorithm](whole).hexdigest()
    assert (path / "weights").read_bytes() == whole
    assert manifest.files["weights"] == (len(whole), (algorithm, expected))
    assert measure_file(path / "weights", algorithm) == manifest.files["weights"]


@given(blocks=BLOCKS, algorithm=ALGORITHMS, data=st.data())
def test_every_changed_bit_lost_end_and_swapped_block_is_found(
    blocks: list[bytes], algorithm: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = save(tmp_path_factory.mktemp("c"), blocks, algorithm)
    whole = bytearray(b"".join(blocks))
    damage = data.draw(st.sampled_from(["bit", "end", "swap", "more"]))
    if damage == "bit":
        bit = data.draw(st.integers(0, 8 * len(whole) - 1))
        whole[bit // 8] ^= 1 << bit % 8
    elif damage == "swap":
        one, other = data.draw(st.lists(st.integers(0, len(blocks) - 1), min_size=2, max_size=2, unique=True))
        blocks[one], blocks[other] = blocks[other], blocks[one]
        whole = bytearray(b"".join(blocks))
    elif damage == "end":
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    else:
        whole += data.draw(st.binary(min_size=1, max_size=40))
    (path / "weights").write_bytes(whole)

    with pytest.raises(CheckpointError, match=r"weights: (its (blake3|sha256) checksum|\d+ bytes)"):
        verify_checkpoint(path)


@given(blocks=BLOCKS, algorithm=ALGORITHMS, data=st.data())
def test_a_flipped_bit_of_the_manifest_never_lets_another_content_pass(
    blocks: list[bytes], algorithm: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = save(tmp_path_factory.mktemp("c"), blocks, algorithm)
    listed = verify_checkpoint(path).files
    text = bytearray((path / "manifest.json").read_bytes())
    bit = data.draw(st.integers(0, 8 * len(text) - 1))
    text[bit // 8] ^= 1 << bit % 8
    (path / "manifest.json").write_bytes(text)

    try:
        assert verify_checkpoint(path).files == listed
    except CheckpointError as error:
        assert str(path) in str(error)  # noqa: PT017 - a bit of white space or of the world changes no file


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda entry: entry.update(sha256=entry.pop("blake3")), "its sha256 checksum does not match"),
        (lambda entry: entry.update(blake4=entry.pop("blake3")), "field missing or invalid"),
        (lambda entry: entry.update(sha256=entry["blake3"]), "field missing or invalid"),
        (lambda entry: entry.update(blake3=entry["blake3"][:-1]), "its blake3 checksum does not match"),
        (lambda entry: entry.update(blake3=""), "its blake3 checksum does not match"),
    ],
)
def test_a_checksum_under_another_algorithms_name_is_refused(
    tmp_path: Path, change: Callable[[dict[str, object]], None], why: str
) -> None:
    path = save(tmp_path, [b"content"])
    rewrite_manifest(path, change)
    with pytest.raises(CheckpointError, match=why):
        verify_checkpoint(path)


def test_a_checkpoint_from_before_blake3_is_still_verified(tmp_path: Path) -> None:
    path = shutil.copytree(OLD / "step-000000007", tmp_path / "step-000000007")
    assert {entry.checksum.algorithm for entry in verify_checkpoint(path).files.values()} == {"sha256"}

    content = bytearray((path / "__0_0.distcp").read_bytes())
    content[-1] ^= 1
    (path / "__0_0.distcp").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"__0_0\.distcp: its sha256 checksum does not match"):
        verify_checkpoint(path)


def test_without_blake3_a_checkpoint_has_the_manifest_of_before(tmp_path: Path, without_blake3: None) -> None:
    path = save(tmp_path, [b"content"])
    entry = {"bytes": 7, "sha256": hashlib.sha256(b"content").hexdigest()}
    manifest = {"version": 1, "step": 7, "world": 1, "files": {"weights": entry}}
    assert json.loads((path / "manifest.json").read_text()) == manifest
    verify_checkpoint(path)


def test_what_cannot_be_verified_here_is_neither_loaded_nor_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(tmp_path, [b"older"], "sha256", step=1)
    save(tmp_path, [b"newer"], "blake3", step=2)
    monkeypatch.setitem(sys.modules, "blake3", None)

    with pytest.raises(ChecksumUnavailableError, match="pip install blake3"):
        checkpoints.latest()

    save(tmp_path, [b"newest"], step=3)
    assert [path.name for path in checkpoints.newest_first()] == [f"step-00000000{step}" for step in (3, 2, 1)]


def test_all_ranks_use_an_algorithm_that_each_has(without_blake3: None) -> None:
    assert choose_algorithm() == "sha256"
    assert choose_common_algorithm(["blake3", "sha256", "blake3"]) == "sha256"
    assert choose_common_algorithm(["blake3", "blake3"]) == "blake3"


def test_the_same_content_under_two_algorithms_is_not_linked(tmp_path: Path) -> None:
    save(tmp_path, [b"content"], "sha256", step=1)
    writer = FileWriter(tmp_path, Checkpoints(tmp_path).linkable(), algorithm="blake3")
    with writer.create("weights") as stream:
        stream.write(b"content")
    assert writer.bytes_linked == 0
    assert writer.entries["weights"].checksum.algorithm == "blake3"


def test_a_write_that_the_kernel_reports_to_an_early_sync_fails_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = threading.Event()

    def fail(_: int) -> None:
        synced.set()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail)
    writer = FileWriter(tmp_path)

    def write() -> None:
        with writer.create("weights") as stream:
            stream.write(b"x" * 100)
            assert synced.wait(10)

    with pytest.raises(OSError, match=r"Input/output error.*weights"):
        write()
    assert writer.entries == {}


def test_where_no_thread_can_start_the_checksum_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    path = save(tmp_path, [b"x" * 100])
    assert verify_checkpoint(path).files["weights"].checksum == Checksum("blake3", blake3(b"x" * 100).hexdigest())


def test_a_failure_beside_is_raised_by_the_one_who_waits() -> None:
    def fail() -> None:
        raise ValueError("beside")

    call = ParallelCall(fail, "test")
    with pytest.raises(ValueError, match="beside"):
        call.wait()
    assert call.done
