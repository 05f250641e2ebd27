"""Record the Python state that a program reads and writes besides its arguments, and compare that
state at each call.

Entry point: ``hooks``.  While a function is traced, each Python function that it loads gets
instrumented code (``instrument``).  The instrumented code calls a hook at every look-up, and the
hooks tell the ``recorder``.  ``loads`` handles the reading of a name or an attribute, for each kind
of owner.  ``values`` handles each kind of loaded value. ``classes`` and ``lookups`` find attributes
in classes.  ``substitutes`` holds the functions that traced code gets instead of ``getattr``,
``isinstance`` and the like.  ``trusted`` lists the code that is assumed never to change, and the
objects that are refused by name because no recording can see into them.  ``modules`` refuses
modules that cannot be traced.

What was read is a list of ``places``.  A ``snapshot`` checks at each call that the places hold
their old values, with the help of ``checker``, ``comparison``, ``pointers`` and ``dict_versions``.
``stores`` notes what the program writes, so that another thread's writes are not attributed to the
program.  ``side_effects`` undoes the writes, and ``changes`` says which of them each call can
repeat.  ``planting`` puts stand-ins where a program reads what programs write.  A ``replacement``
says which objects took the place of which, if nothing else has changed.  ``given`` handles the
lists and dictionaries among the arguments.
"""
