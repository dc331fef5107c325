"""Triton compiles kernels for a GPU that need not be present, into its cache, with the keys that a launch there looks for."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as nvidia
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

WARP_THREADS = 32


class AbsentGpu:
    """Triton's driver interface for one architecture, such as 90; its number is the device's, so that caches stay apart."""

    def __init__(self, architecture: int, utils: Any) -> None:
        self.architecture, self.utils = architecture, utils

    def get_current_target(self) -> Any:
        """The architecture to compile for."""
        return GPUTarget("cuda", self.architecture, WARP_THREADS)

    def get_current_device(self) -> int:
        """A number of its own for each architecture."""
        return self.architecture

    def get_current_stream(self, _: int) -> int:
        """The default stream, on which nothing is launched."""
        return 0


def load_host_module() -> tuple[Any, str]:
    """Triton's own C module, which loads and launches kernels; or None, and why it cannot be compiled here.

    It needs a C compiler and the driver's libcuda.so.1, which a machine without a GPU may lack.
    """
    try:
        return nvidia.CudaUtils(), ""
    except Exception as error:  # noqa: BLE001 - of the compiler, the linker, the loader: each has classes of its own
        return None, next(iter(str(error).splitlines()), "") or type(error).__name__


@contextmanager
def compile_only(architecture: int, utils: Any = None) -> Iterator[list[str]]:
    """Inside, a launch of any kernel compiles it for `architecture` and ends there. Yields the names as they are compiled.

    With `utils`, a Triton that compiles a launcher for each signature does so as well. Afterwards Triton finds no GPU.
    """
    launch, compiled = JITFunction.run, dict[int, str]()

    def compile_kernel(kernel: Any, *values: Any, grid: Any, warmup: bool, **settings: Any) -> Any:  # noqa: ARG001 - the name is Triton's
        made = launch(kernel, *values, grid=grid, warmup=True, **settings)
        if id(made) not in compiled and utils is not None:
            nvidia.CudaLauncher(made.src, made.metadata)
        compiled[id(made)] = made.name
        names[:] = compiled.values()
        return made

    names: list[str] = []
    driver.set_active(AbsentGpu(architecture, utils))
    JITFunction.run = compile_kernel
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the compiler's own defaults
            yield names
    finally:
        JITFunction.run = launch
