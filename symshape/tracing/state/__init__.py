"""Record the Python state that a program reads and writes besides its arguments, and compare that
state at each call.

``instrument``: each Python function that a traced program loads gets code that calls ``hooks`` at
each look-up. ``substitutes`` are the functions that traced code gets instead of ``getattr`` and the
like; ``trusted_code`` is assumed never to change. ``stores`` tells the program's writes from those
of other threads. ``placeholders`` stand where a program reads what programs write.

``record``: the hooks tell the ``recorder``. ``loads`` records reads of a name or an attribute, for
each kind of owner, ``values`` each kind of loaded value, ``class_lookups`` what classes hold. What
was read is a list of ``places``.

``compare``: a ``state`` checks at each call that the places hold their old values. ``checker``
watches dictionaries as wholes, and compares the other places by a generated expression.
``replaced_objects`` says which objects took the place of which, if nothing else has changed.

``undo``: ``side_effects`` undoes a trace's writes, and ``writes`` says which of them calls can
repeat.
"""
