"""Control flow as graph nodes: cond, while_loop, scan, associative_scan and the merging of
branches.
"""
