"""What a figure ought to be, by whose word, and what follows if it is not. Pure: readings, tables and baselines in, results out."""
