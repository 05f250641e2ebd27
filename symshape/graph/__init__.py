"""A traced program as data, and its two forms that run: straight-line Python and ``torch.fx``.

Nothing here traces: a graph is values, nodes, bindings of unbacked symbols and run-time assertions, with the user's
line at each node.
"""
