"""One file per test. Only here torch or the driver's library may be imported, and only in a process of their own.

A test is one function, ``run(fault, note)``: it yields one `Result` per device, commits the injected `fault` if it is
given one, and calls ``note(text)`` before each step that could hang.
"""
