"""Messages between node, controller and trainer: wire structs, their bounds, truncation, evidence, telemetry, hazard.

healthd, remediator and healthctl call it.
May import `finding`, `health`, `order`, `identity`. It opens no socket.
"""
