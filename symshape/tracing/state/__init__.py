"""What a program reads and writes besides its arguments: recorded while it runs, compared at each call, or refused.

``hooks`` is the way in: while a function is traced, each function of Python's that it loads gets code with a call at
every look-up (``instrument``), which tells the ``recorder``.  ``loads`` says what reading a name or an attribute means
for each kind of owner, ``values`` what each kind of value leads to, ``classes`` and ``lookups`` what classes answer;
``substitutes`` are the functions that code gets for ``getattr``, ``isinstance`` and their like.  What is taken to stay,
and what nobody sees into and is refused by name, stands in ``trusted``; ``modules`` refuses modules that cannot be
traced.

What was read are ``places``.  A ``snapshot`` asks at each call whether they hold what they held, by way of ``checker``,
``comparison``, ``pointers`` and ``dict_versions``.  What the program stores is noted by ``stores``, so that another
thread's writes are not taken for it; ``side_effects`` undoes it and ``changes`` says what each call can write again.
``planting`` puts stand-ins where a program reads what programs write.  A ``replacement`` says which objects took the
place of which, where nothing else has changed.  The arguments' own containers are looked after by ``given``.
"""
