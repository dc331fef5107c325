"""Generators of the project's documents and supply-chain files. Installed code never imports them."""
