"""HTTP: checks who speaks and what is said, hands inputs to the engine, renders what the engine published."""
