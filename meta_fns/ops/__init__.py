"""One module a family of operators; each module registers its rules when it is imported, and all of them are.

A rule is a function with the operator's own parameters that answers the metadata of the result, or raises where eager
refuses. To add a family, add a file. Order does not matter: no overload may be registered twice.
"""

from importlib import import_module
from pkgutil import iter_modules

for _family in iter_modules(__path__):
    import_module(f"{__name__}.{_family.name}")
