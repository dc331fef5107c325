"""The NVML child: the only process that ever calls into the driver, so that only it can hang there.

May live here: what asks the driver, and plain dictionaries that say what it answered. The standard library and pynvml
only, and little of the former: all of it has to fit in a quarter of the node's memory budget.
"""
