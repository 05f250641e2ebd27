"""Symbolic tracing: environment, symbolic scalars and tensors, tracer, graph."""
