"""What the kernel writes of faults other than Xids: one file per family, each a table of the forms its lines take."""
