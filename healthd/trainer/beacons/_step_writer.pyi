# The same as `step_writer`, in C; absent where it was built without a compiler.
from healthd.trainer.beacons.step_writer import StepWriter as StepWriter
