"""Record the attributes that code reads of tensors: those set on a tensor, and those of its
class.
"""

from __future__ import annotations

import torch

from symshape.tracing.state.instrument import trusted_code
from symshape.tracing.state.record.class_lookups import look_up, special_methods
from symshape.tracing.state.record.places import Cell
from symshape.tracing.state.record.recorder import Recorder

OF_TENSORS = 0  # no object has this id


def of_tensor(recorder: Recorder, owner: torch.Tensor, key: str) -> None:
    """Record the read of a tensor attribute: one set on the tensor, a method of tensors, or a
    subclass's attribute.
    """
    of_every_tensor(recorder, owner, key)
    if not trusted_code.is_machinery((kind := type(owner)).__module__):
        special_methods(recorder, kind)
        look_up(recorder, kind, key, kind.__qualname__)
    elif kind is not torch.Tensor and not hasattr(torch.Tensor, key):
        _of_parameters(recorder, kind, key)
    name = recorder.tensors.get(id(owner), "a tensor")
    before = recorder.namespace(name, owner.__dict__)
    if key in owner.__dict__ or not hasattr(torch.Tensor, key):
        recorder.attribute(owner, "__dict__", owner.__dict__, f"the attributes of {name}")
    if key in owner.__dict__:
        recorder.entry(owner.__dict__, key, f"{name}.{key}", before)
    elif not hasattr(torch.Tensor, key):
        recorder.absent(name, owner.__dict__, key, before)


def _of_parameters(recorder: Recorder, kind: type, key: str) -> None:
    """Record whether a class of torch, such as ``Parameter``, has an attribute that not every
    tensor has.
    """
    before = recorder.class_namespace(kind)
    if key in before.owner:
        recorder.place(Cell(before.owner, key, before.owner[key], f"{kind.__qualname__}.{key}"))
    else:
        recorder.absent(kind.__qualname__, before.owner, key, before)


def of_every_tensor(recorder: Recorder, owner: torch.Tensor, key: str) -> None:
    """Record a method of ``torch.Tensor``, so that a later replacement of the method is noticed."""
    if (OF_TENSORS, key) not in recorder.seen:
        recorder.seen[OF_TENSORS, key] = None
        before = recorder.class_namespace(torch.Tensor)
        if key in before.owner:
            recorder.place(Cell(before.owner, key, before.owner[key], f"Tensor.{key}"))
        else:
            recorder.absent("Tensor", before.owner, key, before)
