"""What executes an entry: the graph op by op, Inductor's code, or CUDA graphs.

``protocol`` says what a runner is (``run``, ``release``, ``describe``), one file each holds a runner, and the table in
``choice`` knows them by name.  To add one, write its file and its row.
"""
