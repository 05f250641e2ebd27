"""The ways in: the compile function, the torch.compile backend, the command line."""
