"""CUDA graphs: capture, streams, memory pools, random numbers, copies inside graphs, and launch."""
