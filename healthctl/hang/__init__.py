"""Why a job hangs, told from what its ranks left behind: PyTorch's flight recorder dumps, one for each rank."""
