"""Symbolic numbers: the nodes inside ``torch.SymInt``, ``SymBool`` and ``SymFloat``.

To torch a node is a SymNode: C++ and ``torch.SymInt`` call ``add``, ``guard_bool`` … (protocol
checked on torch 2.11 to 2.13: ``torch/csrc/utils/python_symnode.h``,
``torch/fx/experimental/sym_node.py``).  To ``meta_fns`` an int node is a size: ``+ - * // % == <``
and the methods of ``meta_fns/core/sizes.py``.  In both parts it holds a term and leaves every
decision to its environment.
"""
