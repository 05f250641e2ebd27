"""Persistent entries: traced programs as files, which serve while everything that they read is
unchanged.

``json_values`` writes values, formulas and nestings as JSON. ``code_digests`` and ``environment``
identify code and machine. ``descriptions`` describes an object by content, and ``object_paths``
finds it from the function. ``call_structure`` covers the arguments, ``state_format`` all that a
trace read, ``graph_format`` the operators. ``entry_format`` puts an entry together. ``disk`` stores
files that many processes write at once. ``function_entries`` is the interface for a compiled
function.

An entry is read as hostile input: sizes are bounded, operators are looked up by name and schema
among those with a rule, and generated code is made anew from the graph. Nothing is unpickled,
evaluated or imported.
"""
