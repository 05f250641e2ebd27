"""The runner of Inductor's kernels, compiled beside the calls in another process."""
