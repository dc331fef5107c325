"""The products of a GPU: on a simulated `cuda` everywhere, and on a real one where there is one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from healthd.trainer.adapters import product_digests
from healthd.trainer.adapters.product_digests import SHIFT, CudaProducts, make_factors
from healthd.trainer.beacons.beacon import Beacon, RankPlacement, read_page
from healthd.trainer.product_sampling import PATTERNS, SHARE, SWITCH, begin_and_sample
from tests.unit.preflight.simulated_cuda import PRODUCT, CudaState, DeviceMapping, install_cuda

pytestmark = pytest.mark.torch
SIZE = 192


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaState]:
    state = install_cuda(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(product_digests, "SIZE_ON_GPU", SIZE)
    with DeviceMapping(state):
        torch.cuda.set_device(1)
        yield state


def compute_exactly(size: int, pattern: int) -> torch.Tensor:
    factors = make_factors(size, torch.float64, torch.device("cpu"))
    rows = slice(SHIFT * (pattern // 2), SHIFT * (pattern // 2) + size)
    narrow, wide = factors.narrow[rows], factors.wide[rows]
    return wide @ narrow.t() if pattern % 2 else narrow @ wide.t()


def test_a_rank_on_a_gpu_uses_its_own_device_only(cuda: CudaState) -> None:
    products = CudaProducts()
    digests = []
    for pattern in range(PATTERNS):
        done = products.read(products.start(pattern))  # type: ignore[arg-type] # nothing is captured
        assert done is not None
        digests.append(done.digest)
        assert torch.equal(products._work.product.cpu().double(), compute_exactly(SIZE, pattern))
    assert cuda.contexts == {1}
    assert len({*digests}) == PATTERNS
    assert products.platform == f"{PRODUCT}, 4 SMs, torch {torch.__version__}, CUDA 13.0"


def test_nothing_is_queued_into_a_graph_or_summed_in_fp16(cuda: CudaState, monkeypatch: pytest.MonkeyPatch) -> None:
    products = CudaProducts()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert products.start(0) is None
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert products.start(0) is not None
    monkeypatch.setattr(torch.backends.cuda.matmul.__class__, "allow_fp16_accumulation", True, raising=False)
    assert products.start(0) is None
    assert cuda.contexts == {1}


@pytest.mark.parametrize("switch", ["", "1", "0"])
def test_a_rank_on_a_gpu_samples_unless_told_not_to(
    switch: str, cuda: CudaState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("healthd.trainer.product_sampling.SHARE", 1e6)
    tmp_path.chmod(0o700)
    beacon = Beacon.create(str(tmp_path), RankPlacement("job", 0, 0, 1, 0, "n1"))
    begin = begin_and_sample(beacon, {SWITCH: switch})
    for step in range(20):
        begin(step)
    told = read_page(beacon.path).digests
    beacon.close()
    assert (told is not None and told.platform.startswith(PRODUCT)) == (switch != "0")
    assert cuda.contexts == {1}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_computes_exactly_and_is_never_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    products = CudaProducts()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for pattern in (*range(PATTERNS), *range(PATTERNS)):
            began = time.perf_counter()
            product = products.start(pattern)
            host_s = time.perf_counter() - began
            assert product is not None
            while (done := products.read(product)) is None:
                time.sleep(0.001)
            torch.cuda.set_sync_debug_mode("default")
            exact = compute_exactly(product_digests.SIZE_ON_GPU, pattern)
            assert torch.equal(products._work.product.cpu().double(), exact)
            torch.cuda.set_sync_debug_mode("error")
            with capsys.disabled():
                print(f"host {1e6 * host_s:.0f} µs, device {1e6 * done.seconds:.0f} µs, share {SHARE:.2%}")
    finally:
        torch.cuda.set_sync_debug_mode("default")
