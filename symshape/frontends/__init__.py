"""The ways in: ``symshape.trace``, ``symshape.compile``, the backend of ``torch.compile``, and the command line.

``trace`` answers one program to look at.  ``compile`` keeps programs in the cache of ``runtime`` and traces when a call
fits none; what it then says of the miss is made in ``differences``.  ``dynamo`` is ``compile`` for Dynamo's graphs,
with a key of the symbolic sizes alone.  ``cli`` has the words, the demo and its lanes.
"""
