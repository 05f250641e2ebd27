"""What executes an entry: the graph op by op, Inductor's code, or CUDA graphs."""
