"""What a program reads and writes besides its arguments: found, compared at each call, or refused."""
