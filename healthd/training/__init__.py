"""Training watchdogs: what is usual for a job's progress and step values, and when it deviates.

Holds stall, slowdown and spike detection, step windows for the controller, and the step reader. Called by the training
checks and the beacon source. May import `healthd.trainer.beacons` and `vocabulary`. Pure: no clock, no file, no
finding.
"""
