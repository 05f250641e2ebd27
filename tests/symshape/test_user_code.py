"""Whose a file is, and the user's line at which something happened."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import sysconfig
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import guards
import meta_fns
import symshape
from symshape.user_code import (
    at,
    describes,
    is_library,
    is_users,
    location_in,
    name_of,
    origin,
    origin_of,
    raised_at,
    user_frame,
    user_location,
)


def file_of(module: ModuleType) -> str:
    return str(module.__file__)


OURS = [file_of(package) for package in (guards, meta_fns, symshape)]
TORCH = [file_of(torch), file_of(torch.nn.functional)]
INSTALLED = [
    file_of(json),
    str(Path(sysconfig.get_path("purelib")) / "other.py"),
    "/x/dist-packages/other.py",
]
DESCRIBING = [file_of(module) for module in (logging, warnings, traceback)]


@pytest.mark.parametrize("file", [*OURS, *TORCH])
def test_our_own_packages_and_torch_are_no_part_of_the_program(file: str) -> None:
    assert is_library(file)
    assert describes(file)
    assert not is_users(file)


@pytest.mark.parametrize("file", INSTALLED)
def test_a_library_has_lines_worth_showing_but_keeps_its_own_state(file: str) -> None:
    assert is_library(file)
    assert is_users(file)
    assert not describes(file)


@pytest.mark.parametrize("file", DESCRIBING)
def test_what_makes_messages(file: str) -> None:
    assert describes(file)
    assert is_library(file)


@pytest.mark.parametrize(
    "file", ["<string>", "<frozen importlib._bootstrap>", *map(file_of, (contextlib, functools))]
)
def test_what_stands_between_the_user_and_us_is_passed_over(file: str) -> None:
    assert not is_users(file)
    assert not describes(file)


def test_the_users_own_files(tmp_path: Path) -> None:
    # begins like ours, but is another folder
    beside = str(Path(file_of(symshape)).parent) + "_of_mine/model.py"
    for file in (__file__, str(tmp_path / "program.py"), beside, "<ipython-input-1>"):
        assert is_users(file)
        assert not describes(file)
    assert not is_library(__file__)
    assert not is_library(str(tmp_path / "program.py"))


# -- where something happened


def test_the_innermost_frame_of_the_program_is_found_through_a_library() -> None:
    @contextlib.contextmanager
    def manager() -> Iterator[None]:
        yield

    frame = user_frame()
    assert frame is not None
    assert frame.f_code.co_filename == __file__
    with manager():
        here = user_location()
    assert here is not None
    assert here[0] == __file__
    assert here[2].endswith("test_the_innermost_frame_of_the_program_is_found_through_a_library")


def test_a_deprecated_function_of_torch_is_asked_for_where_the_program_calls_it() -> None:
    with pytest.warns(FutureWarning):
        traced = symshape.trace(
            lambda x: (torch._check_is_size(x.size(0) - 2), x[2:])[1], torch.ones(5)
        )
    (guard,) = traced.guards
    assert guard.origin.file == __file__


def test_a_stated_place_goes_before_the_frames() -> None:
    place = ("model.py", 7, "forward")
    with at(place):
        assert user_location() == place
        with at(None):
            assert user_location() != place
        assert user_location() == place
    assert user_location() != place


def test_origins_have_the_source_text() -> None:
    found = origin("aten::add", "add")
    assert (found.file, found.op, found.rule) == (__file__, "aten::add", "add")
    assert found.text == 'found = origin("aten::add", "add")'
    nowhere = origin_of(None, "aten::add")
    assert (nowhere.file, nowhere.line, nowhere.op) == ("", 0, "aten::add")


def test_where_an_error_was_raised() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.ones(2) + torch.ones(3)
    assert "torch.ones(2) + torch.ones(3)" in raised_at(raised.value)
    with pytest.raises(ValueError, match="Expecting") as raised_by_library:
        json.loads("{")
    # a library's own line is nearer
    assert raised_at(raised_by_library.value).startswith("decoder.py:")
    assert raised_at(ValueError("never raised")) == "an unknown place"


def test_lines_in_a_stack_trace_of_fx() -> None:
    trace = (
        f'  File "model.py", line 3, in forward\n    y = self.inner(x)\n'
        f'  File "inner.py", line 12, in inner\n    return x + 1\n  File "{file_of(torch)}", line '
        "9, in add\n"
    )
    assert location_in(trace) == ("inner.py", 12, "inner")
    assert location_in(None) is None
    assert location_in(f'  File "{file_of(torch)}", line 9, in add\n') is None


def test_names_for_messages() -> None:
    assert name_of(test_names_for_messages) == "test_names_for_messages"
    assert name_of(torch.nn.ReLU()) == "ReLU"
