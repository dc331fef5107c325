from __future__ import annotations

import importlib.util
import os

# Before any test file here imports it: without a GPU, Triton's kernels run on the processor, through numpy.
# Where there is no triton (make test runs these files with it), the files that need it are skipped.
if importlib.util.find_spec("triton"):
    os.environ["TRITON_INTERPRET"] = "1"
