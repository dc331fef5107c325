#!/bin/sh
# The baseline's HealthCheckProgram. It stands for nvidia-smi and a look at the network port, and it is a good one: it sees every
# fault that would stop the next job, too.   health_check.sh PLACE
grep -q '"stays":"[a-z]' "$1/nodes/$SLURMD_NODENAME/gpu.json" || exit 0
sinfo -h -n "$SLURMD_NODENAME" -o %T | grep -q '^drain' && exit 0
exec scontrol update NodeName="$SLURMD_NODENAME" State=DRAIN Reason="health check: the GPU or the port is bad"
