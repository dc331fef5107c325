"""One file per source. Reading and parsing are two functions; collectors know nothing of checks, nor of each other."""
