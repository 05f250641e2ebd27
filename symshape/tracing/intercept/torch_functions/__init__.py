"""Functions of torch that a trace computes in its own way, so that sizes stay symbols."""
