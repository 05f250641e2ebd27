"""The entry points: ``symshape.trace``, ``symshape.compile``, the backend of ``torch.compile``, the
command line.

``trace`` returns one program to look at. ``compile`` returns a ``Compiled``, which finds entries
with the dispatcher of ``runtime``. Where no entry serves a call, ``misses`` makes one, with a
program from ``program_sources``; ``differences`` explains the miss. ``dynamo`` is ``compile`` for
Dynamo's graphs, with a key of the symbolic sizes alone. ``cli`` has the commands, the demo and its
lanes.
"""
