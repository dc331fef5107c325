"""What NCCL prints between two nodes: the formats are those in its libraries from 2.18.3 to 2.28.9; the names are made up."""

from __future__ import annotations

_2_18 = """vm:6420:6420 [0] NCCL INFO Bootstrap : Using eth0:192.0.2.2<0>
NCCL version 2.18.3+cuda12.1
n0:31842:31905 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:192.0.2.2<0>
n0:31842:31905 [0] NCCL INFO NET/IB : GPU Direct RDMA {state} for HCA 0 'mlx5_0'
n0:31842:31905 [0] NCCL INFO NET/IB : GPU Direct RDMA {state} for HCA 1 'mlx5_1'
n0:31842:31905 [0] NCCL INFO GPU Direct RDMA {state} for GPU 1a000 / HCA 0 (distance 4 <= 4), read 1
n0:31842:31905 [0] NCCL INFO Channel 00/02 :    0   1
n0:31842:31905 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0{direct}
n0:31842:31905 [0] NCCL INFO Channel 01/0 : 1[0] -> 0[0] [receive] via NET/IB/1{direct}/Shared
n0:31842:31905 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0(1){direct}
n0:31842:31905 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NET/IB/1{direct}
n0:31842:31905 [0] NCCL INFO Connected all rings
"""
_BUS = _2_18.replace("NCCL version 2.18.3+cuda12.1\n", "").replace("1[0] -> 0[0]", "1[1a000] -> 0[1a000]")
_OLD = _BUS.replace("Channel 00/0 : 1", "Channel 00 : 1").replace("Channel 01/0 : 1", "Channel 01 : 1")
_2_21 = _2_18.replace("2.18.3+cuda12.1", "2.21.5+cuda12.4").replace("NET/IB", "NET/IBext_v8")
_2_25 = _2_18.replace("2.18.3+cuda12.1", "2.25.1+cuda12.8").replace("GPU 1a000 / HCA 0", "GPU 0 / HCA 0")
_2_27 = _2_25.replace("2.25.1", "2.27.7").replace(
    "NCCL INFO NET/IB : GPU",
    "NCCL INFO NET/IB : GPU Direct RDMA (DMABUF) enabled for HCA 7 'mlx5_7'\nn0:1:2 [0] NCCL INFO NET/IB : GPU",
)
_2_28 = _2_25.replace("2.25.1+cuda12.8", "2.28.9+cuda13.0").replace("{direct}", "{direct}{pci}")
RELEASES = {"oldest": _OLD, "older": _BUS, "2.18": _2_18, "2.21": _2_21, "2.25": _2_25, "2.27": _2_27, "2.28": _2_28}  # fmt: skip
TCP = """n0:1:2 [0] NCCL INFO NET/IB : No device found.
n0:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:192.0.2.2<0>
n0:1:2 [0] NCCL INFO NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'
n0:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
n0:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0
"""


def build_log(release: str, *, direct: bool) -> str:
    """The log of one node of a pair."""
    state, end = ("Enabled", "/GDRDMA") if direct else ("Disabled", "")
    return RELEASES[release].format(state=state, direct=end, pci="(PCI)" if direct else "")
