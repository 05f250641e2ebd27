"""What is taken to stay, and what nobody sees into."""

from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import enum
import io
import itertools
import json
import operator
import os
import random
import re
import secrets
import threading
import time
import types
import uuid
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import guards
import symshape
from symshape import UnsupportedError
from symshape.tracing.state.instrument import trusted_code
from tests.symshape.tracing.state.recorded import recorded


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (json.__file__, True),
        (torch.functional.__file__, True),
        (nn.functional.__file__, True),
        (nn.modules.module.__file__, True),
        (nn.modules.linear.__file__, False),  # hangs on its attributes
        (nn.utils.parametrize.__file__, False),
        (guards.__file__, True),
        (symshape.__file__, True),
        (numpy.__file__, True),
        (pytest.__file__, False),  # of a library, which is read like the user's own
        (__file__, False),
    ],
)
def test_code_that_is_taken_to_compute_from_its_arguments(file: str, expected: bool) -> None:
    assert trusted_code.is_trusted(file) is expected


def test_classes_of_python_and_torch_are_machinery() -> None:
    for kind in (nn.Module, torch.Tensor, collections.OrderedDict, dict):
        assert trusted_code.is_machinery(kind.__module__)
    for name in (nn.Linear.__module__, __name__, "__main__"):
        assert not trusted_code.is_machinery(name)


@pytest.mark.parametrize(
    "function",
    [
        time.time,
        time.perf_counter,
        random.Random().random,
        secrets.token_hex,
        uuid.uuid4,
        os.getcwd,
        os.listdir,
        os.path.exists,
        open,
        eval,
        exec,
        input,
        globals,
        threading.get_ident,
        threading.current_thread,
        decimal.getcontext,
    ],
)
def test_functions_that_read_what_changes_by_itself(function: Any) -> None:
    if isinstance(getattr(function, "__self__", None), random.Random):
        assert trusted_code.is_hidden(random.Random)
    else:
        assert function.__name__ in trusted_code.hides(function)


@pytest.mark.parametrize(
    "function", [len, max, os.getenv, os.fspath, os.path.join, json.dumps, torch.add, recorded]
)
def test_functions_that_hide_nothing(function: Any) -> None:
    assert trusted_code.hides(function) == ""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (iter([]), True),
        (itertools.count(), True),
        (io.StringIO(), True),
        (random.Random(), True),
        (threading.local(), True),
        (threading.Event(), True),
        (memoryview(b""), True),
        (3, False),
        ("a", False),
        ([], False),
        (collections.OrderedDict(), False),
        (nn.ReLU(), False),
        (types.SimpleNamespace(), False),
        (re.compile("a"), False),
        (datetime.date(2000, 1, 1), False),
        (decimal.Decimal(1), False),
        (enum.Enum("Colour", "RED").RED, False),  # type: ignore[attr-defined]
        (numpy.float32(1), False),
        (threading.Lock(), True),
        (argparse.Namespace(), False),
    ],
)
def test_values_that_hide_state(value: Any, expected: bool) -> None:
    assert trusted_code.is_hidden(type(value)) is expected


def test_an_object_of_a_class_that_derives_from_a_hidden_one_is_hidden() -> None:
    class Own(random.Random):
        pass

    assert trusted_code.is_hidden(Own)


def test_classes_of_c() -> None:
    for kind in (int, dict, operator.itemgetter, torch.Generator):
        assert trusted_code.is_of_c(kind), kind
    for kind in (nn.Linear, collections.Counter, UserKind):
        assert not trusted_code.is_of_c(kind), kind


class UserKind:
    """A class of Python code."""


def _catching(run: Any) -> Any:
    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            run()
        except Exception:
            return x * 2
        return x

    return fn


@pytest.mark.parametrize(
    ("run", "name"),
    [
        (lambda: time.time(), "time.time"),
        (lambda: datetime.datetime.now(), "datetime.now"),
        (lambda: open(__file__).close(), "open"),
        (lambda: eval("1"), "eval"),
        (lambda: exec("a = 1"), "exec"),
        (lambda: globals(), "globals"),
        (lambda: os.getcwd(), "getcwd"),
        (lambda: uuid.uuid4(), "uuid4"),
        (lambda: threading.current_thread(), "current_thread"),
        (lambda: getattr(time, "monotonic")(), "time.monotonic"),  # noqa: B009
    ],
)
def test_they_are_refused_by_name_even_if_the_program_catches_that(run: Any, name: str) -> None:
    with pytest.raises(UnsupportedError, match=name.replace(".", r"\.")):
        symshape.trace(_catching(run), torch.ones(3))
    compiled = symshape.compile(_catching(run))
    with pytest.warns(symshape.FallbackWarning, match=name.replace(".", r"\.")):
        assert torch.equal(compiled(torch.ones(3)), torch.ones(3))
