"""Writes of a traced function: recorded, undone after the trace, and repeated by each call."""
