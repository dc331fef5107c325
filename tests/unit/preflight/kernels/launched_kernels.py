"""Run the device tests as on a GPU with Triton, each launch compiled only: `python -m ... ARCHITECTURE` prints the kernels launched."""

from __future__ import annotations

import sys

import pytest
import torch

from preflight.checks import cache_pattern, digest_evidence, memory_allocation
from preflight.kernels import matmul_products, product_verification, tensor_digests
from preflight.kernels.ahead_of_time import compile_only
from tests.unit.preflight.simulated_checks import DEVICE_TESTS, run_check, shrink_checks
from tests.unit.preflight.simulated_cuda import DeviceMapping, install_cuda


def main() -> None:
    architecture = int(sys.argv[1])
    with pytest.MonkeyPatch.context() as patch, compile_only(architecture) as names:
        shrink_checks(patch)
        patch.setattr("preflight.kernels.gpu_memory_allocation.RESERVE_BYTES_MIN", 24 << 20)
        patch.setattr(memory_allocation, "count_disagreements", lambda *_: 0)  # no kernel has written a word
        patch.setattr(cache_pattern, "GPU_REPEATS", 1)
        for module in (tensor_digests, product_verification, digest_evidence):
            patch.setattr(module, "explain_missing_triton", lambda _device: "")
        patch.setattr(matmul_products, "BUFFERS", 1)
        state = install_cuda(patch)
        with DeviceMapping(state):
            torch.cuda.set_device("cuda:1")
            for level in ("gate", "standard"):
                for spec in DEVICE_TESTS:
                    run_check(spec.test, level=level)
    print("\n".join(sorted(set(names))))


if __name__ == "__main__":
    main()
