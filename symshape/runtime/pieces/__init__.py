"""Programs cut to pieces: what can be recorded, and what has to run as it is in between."""
