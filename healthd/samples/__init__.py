"""One file per source: what its collector hands over and its check judges. One raw reading, at one instant.

A value that could not be had is None (unknown), never zero. The children import these: nothing heavy.
"""
