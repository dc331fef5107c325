"""The NVML child: the only process that calls into the driver, so that only it can hang there.

Holds the GPU queries and the sweep loop; `gpu_monitoring` starts it as a process and reads its JSON lines. May import
the standard library, pynvml, `samples`' constants and `supervision.child_call_page`: all of it has to fit into a
quarter of the node's memory budget.
"""
