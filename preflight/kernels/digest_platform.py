"""What determines the bits of a product besides its operands: chip, number of SMs, libraries, and their settings."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

import torch

from preflight.kernels import golden_digests

CPU_FACTS = Path("/proc/cpuinfo")
# Environment variables that change the library's order of summing.
SETTINGS = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUBLASLT_WORKSPACE_SIZE",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "MKL_CBWR",
    "ONEDNN_MAX_CPU_ISA",
)


def describe_platform(device: str) -> str:
    """A description; digests of devices with equal descriptions can be compared."""
    libraries = {"torch": str(torch.__version__)}
    libraries |= {name: os.environ[name] for name in SETTINGS if os.environ.get(name)}
    if not device.startswith("cuda"):
        units = f"{torch.get_num_threads()} threads"
        return golden_digests.format_platform_name(
            _read_processor_name(), torch.backends.cpu.get_cpu_capability(), units, libraries
        )
    about = torch.cuda.get_device_properties(device)
    libraries |= {"CUDA": str(torch.version.cuda)} | _read_cublas_version()
    architecture, units = f"sm_{about.major}{about.minor}", f"{about.multi_processor_count} SMs"
    return golden_digests.format_platform_name(str(about.name), architecture, units, libraries)


def _read_cublas_version() -> dict[str, str]:
    """CuBLAS as installed beside torch: its version can be another than that of CUDA."""
    for package in (f"nvidia-cublas-cu{str(torch.version.cuda).partition('.')[0]}", "nvidia-cublas"):
        try:
            return {"cuBLAS": metadata.version(package)}
        except metadata.PackageNotFoundError:
            continue
    return {}


def _read_processor_name() -> str:
    for line in CPU_FACTS.read_text().splitlines() if CPU_FACTS.exists() else ():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return "processor"
