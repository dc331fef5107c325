"""The tests, one module each. Only they import torch or the driver library, and they run in worker processes.

A test is a function ``check_NAME(context)`` in the module ``NAME``. It yields at least one `Result` with every figure it
measured (`preflight.expectations` judges them later), injects the fault it is given, and calls ``context.note(text)``
before each step that could hang. `preflight.plan` defines three scopes: a test of the *node* runs in one process, a test
of a *device* in each device's process at the same time, a test of *peers* in all of them with torch's default process
group. Conclusions from several devices together are in `preflight.device_comparison`.
"""
