"""Cost rules: operations, bytes and kernels of each op, one row an op, whole families in one
stroke.

Each module writes its rules into the rows that ``ops`` registered (``registry.charge``) when it is
imported, and all of them are; variants that are derived from a row (in-place, ``out=``, copies)
inherit its cost. An op without a rule has no cost, which is said and never taken for 0
(``evaluation.work_of`` returns None).
"""

from importlib import import_module
from pkgutil import iter_modules

import meta_fns.ops  # the rows that costs are written into  # noqa: F401

for _family in iter_modules(__path__):
    import_module(f"{__name__}.{_family.name}")
