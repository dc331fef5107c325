"""Where a node's healthd answers who is on the node: preflight, the launcher and people's commands ask there."""

SOCKET = "/run/gpu-healthd/healthd.sock"  # unless HEALTHD_SOCKET or --socket says otherwise
