"""Entries that last: traced programs as files, found again by what the program is, served when all it read is the same.

``constants``, ``terms`` and ``trees`` are values, formulas and nestings as JSON; ``code_digests`` and ``environment``
say what code and what machine an entry is of; ``descriptions`` what an object is by content, ``reaching`` how it is
reached from the function, ``state_writing`` and ``state_reading`` all that a trace read; ``graph_writing`` and
``graph_reading`` are the operators; ``entry_format`` puts an entry together; ``disk`` keeps files that many processes
write at once; ``keeping`` is what a compiled function asks.

An entry is read as hostile input: sizes are bounded, operators are looked up by name and schema among those with a
rule, generated code is made anew from the graph; nothing is unpickled, evaluated or imported.
"""
