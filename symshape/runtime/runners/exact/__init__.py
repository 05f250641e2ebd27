"""The runner of CUDA graphs at exact sizes."""
