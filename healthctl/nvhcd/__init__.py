"""The health check service of NVIDIA's resiliency launcher, which runs before each rendezvous, based on healthd's verdict.

gRPC `nvhcd.HealthCheckService/RunHealthCheck` over a UNIX socket (nvidia-resiliency-ext, shared_utils/proto/nvhcd.proto).
A separate program, so that healthd needs no gRPC.
"""
