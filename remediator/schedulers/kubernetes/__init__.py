"""The Kubernetes backend: what we write on a node and how we know it again, what runs there, and how it is asked to leave.

`scheduler` is the door; `holding`, `pods` and `names` are pure. Only `connection` knows the official client library, and
imports it when it first speaks: other backends do not need it.
"""
