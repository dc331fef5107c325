"""What `preflight compile` puts into Triton's cache is all that the device tests launch, so a node's first gate compiles nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from triton.backends.nvidia import driver as nvidia

from preflight.execution.kernel_cache import copy_compiled_kernels

ROOT = Path(__file__).parents[4]


def run_python(*arguments: str, cache: Path, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment | {"TRITON_CACHE_DIR": str(cache)} | more,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def test_every_kernel_that_a_test_launches_was_compiled_ahead_and_may_be_copied(tmp_path: Path) -> None:
    made, moved, cache = tmp_path / "made", tmp_path / "moved", tmp_path / "cache"
    done = run_python("-m", "preflight", "compile", "--architecture", "9.0", "--cache", str(made), cache=tmp_path)
    assert f"sm_90: {len(list(made.rglob('*.cubin')))} kernels in {made}" in done.stdout
    made.rename(moved)  # on another machine the first place does not exist
    copy_compiled_kernels({"HEALTHD_PREFLIGHT_KERNELS": str(moved), "TRITON_CACHE_DIR": str(cache)})
    ahead = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    launched = run_python("-m", "tests.unit.preflight.kernels.launched_kernels", "90", cache=cache).stdout.split()
    assert {"write_kernel", "verify_kernel", "verify_and_write_kernel", "digest_kernel", "product_kernel"} <= {
        *launched
    }
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == ahead


def test_a_machine_without_a_gpu_has_to_name_an_architecture(tmp_path: Path) -> None:
    done = run_python("-m", "preflight", "compile", cache=tmp_path, code=3)
    assert "give --architecture to compile without a GPU" in done.stderr


def test_an_architecture_that_the_compiler_does_not_know_is_an_error(tmp_path: Path) -> None:
    done = run_python("-m", "preflight", "compile", "--architecture", "130", cache=tmp_path, code=3)
    assert "kernels were not compiled" in done.stderr


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_a_copied_cache_needs_no_compiler(tmp_path: Path) -> None:
    """The launcher is compiled against a library with the names of the driver's functions; calling them is not needed."""
    source = Path(nvidia.__file__).with_name("driver.c").read_text()
    names = sorted({*re.findall(r"\bcu[A-Z]\w+\b(?= *\()", source), "cuLaunchKernelEx", "cuOccupancyMaxActiveClusters"})
    (tmp_path / "stub.c").write_text("".join(f"int {name}(void) {{ return 100; }}\n" for name in names))
    driver = tmp_path / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", driver, tmp_path / "stub.c"], check=True)
    (tmp_path / "libcuda.so").symlink_to(driver)
    stub = {"TRITON_LIBCUDA_PATH": str(tmp_path), "LD_LIBRARY_PATH": str(tmp_path)}
    load = "from preflight.kernels.ahead_of_time import load_host_module; print(load_host_module()[1] or 'loaded')"
    if file := shutil.which("file"):
        (tmp_path / "file").symlink_to(file)  # Python asks it for the architecture, which is a part of Triton's key
    without = {"PATH": str(tmp_path)}
    assert run_python("-c", load, cache=tmp_path / "cache", **stub, **without).stdout != "loaded\n"
    for environment in (stub, stub | without):
        assert run_python("-c", load, cache=tmp_path / "cache", **environment).stdout == "loaded\n"
