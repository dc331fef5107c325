"""What the training watchdogs know of a job: its usual pace and its usual numbers. Pure: no clock, no file, no finding."""
