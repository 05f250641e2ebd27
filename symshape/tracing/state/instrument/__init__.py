"""Bytecode that reports what a function reads and writes while it is traced."""
