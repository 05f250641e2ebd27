"""A traced program as data, and its executable forms: straight-line Python, ``torch.fx``, and node
by node.

Nothing here traces: a graph is values, nodes, bindings of unbacked symbols and run-time assertions,
with the user's line at each node.
"""
