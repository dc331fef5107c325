"""Who started this process: one file for each launcher, each reads its own environment. Pure but for the mapping it is given."""
