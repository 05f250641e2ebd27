"""The runners that execute an entry's program: the graph op by op, Inductor's code, or CUDA graphs.

``protocol`` defines a runner (``run``, ``release``, ``describe``), one file each implements one,
and the table in ``choice`` lists them by name.  To add a runner, write its file and its row.
"""
