"""Pure reducers over many nodes: records in, a number or a verdict out. Each knows nothing of the others."""
