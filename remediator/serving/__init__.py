"""One replica before the world: its door, its guests, and what runs only while it leads."""
