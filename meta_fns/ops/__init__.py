"""The rules by family of operators: one module a family, which registers its rules when it is
imported.

A rule is a function with the operator's own parameters. It returns the metadata of the result, or
raises where eager raises. To add a family, add a file; this package imports all of them. No
overload may be registered twice.
"""

from importlib import import_module
from pkgutil import iter_modules

for _family in iter_modules(__path__):
    import_module(f"{__name__}.{_family.name}")
