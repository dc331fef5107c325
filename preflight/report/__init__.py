"""Renders a preflight document as text, HTML or JUnit.

`preflight.main` and `preflight.commands` call it.
It measures and judges nothing; it may import root modules, `expectations` and no torch.
"""
