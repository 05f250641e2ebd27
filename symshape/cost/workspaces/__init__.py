"""The memory that kernels allocate for themselves, measured by running each op once on the
device.
"""
