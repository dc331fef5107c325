"""GPU kernels and the verification of their results: memory patterns, operands, digests, products, checksums.

`preflight.checks` calls it. Modules here import only torch, triton and each other, so that a copy of this folder
can test a card. A word of memory is 64 bits; addresses count words from the first allocated word.
"""
