"""Parts of `bench/preflight_gpu.py`; like it they import torch, triton, NVML's binding and `preflight.kernels`, nothing else."""
