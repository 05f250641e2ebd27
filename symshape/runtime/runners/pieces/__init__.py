"""The runner of programs in pieces: recorded parts, and ops between them that run one by one."""
