"""Guards: conditions with the place in the user's program that needs them, and sets of them.

A ``GuardSet`` is the condition under which one compiled graph stays valid. From the same object
come its check and its explanation (``codegen``), its JSON (``serialize``), its table (``html``),
and the proof that several sets leave no gap (``coverage``). ``sources`` say where a symbol's value
is read at run time.
"""
