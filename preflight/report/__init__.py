"""A preflight's document as people and programs read it: text, HTML, JUnit.

Here is what only shows. Nothing measures, judges or asks the machine, and nothing of torch is imported.
"""
