"""The entry points: ``symshape.trace``, ``symshape.compile``, the backend of ``torch.compile``, the command line.

``trace`` returns one program to look at. ``compile`` stores programs in the cache of ``runtime`` and traces when a call
fits none; ``differences`` explains such a miss. ``dynamo`` is ``compile`` for Dynamo's graphs, with a key of the
symbolic sizes alone. ``cli`` has the commands, the demo and its lanes.
"""
