"""The question of NVIDIA's resiliency launcher before a rendezvous, answered from healthd's verdict.

gRPC `nvhcd.HealthCheckService/RunHealthCheck` over a UNIX socket (nvidia-resiliency-ext, shared_utils/proto/nvhcd.proto).
A program of its own, so that healthd stays light.
"""
