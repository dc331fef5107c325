"""One file per test. Only here torch or the driver's library may be imported, and only in a process of their own.

A test is one function, ``check_NAME(context)``, in the module ``NAME``: it yields one `Result` or more, with every figure it measured and without expectations
(those are put to them later, by `preflight.expectations`), commits the injected fault if it is given one, and calls
``context.note(text)`` before each step that could hang. There are three scopes, named in `preflight.plan`: a test of the *node* runs in
one process, a test of a *device* in every device's process at once, a test of *peers* in all of them with torch's default process group.
What only the results of several devices say together is judged by a pure function in `preflight.device_comparison`.
"""
