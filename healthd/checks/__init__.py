"""Checks, one file per concern: samples in, raised and cleared facts out.

Called by `gpu_monitoring`, `source_monitoring` and `node_monitor`. May import `findings`, `samples`, `kernel_log`,
`training` and `vocabulary`. Pure: no clock, no files, no logging.
"""
