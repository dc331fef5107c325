"""Work for a GPU, and how its results are judged: patterns of memory, operands, digests, products, checksums.

Here a file may import torch, triton and its neighbours, and nothing else: a plain copy of the tree with these two
installed must be able to test a card. A word of memory is 64 bits; addresses count words from the first word taken.
"""
