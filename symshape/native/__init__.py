"""The C++ extensions: where each is found, and how it is compiled for the installed torch.

``extensions`` is the list of them, which ``setup.py`` reads too.  ``loader`` imports one, from
beside its source (``make``, or a wheel that was built with torch at hand) or from ``cache``, a
folder of this user's.  ``building`` starts a compiler in the background when a wheel has none;
``compiling`` is the program that runs then.  Python serves where C++ does not.

``python -m symshape.native`` compiles now and waits, for images and for machines without a compiler
of their own.
"""
