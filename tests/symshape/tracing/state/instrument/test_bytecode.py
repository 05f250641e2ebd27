"""Instrumented code against what ``dis`` says of it: stack depths, tables, and that nothing else
changed.
"""

import dis
import importlib
import types
from collections.abc import Iterator
from typing import Any

import pytest

from symshape.errors import UnsupportedError
from symshape.tracing.state.instrument import bytecode, rewriter
from symshape.tracing.state.instrument.rewriter import instrumented
from tests.symshape.tracing.state.silent_hooks import HOOKS

_ENDS = {
    "RETURN_VALUE",
    "RETURN_CONST",
    "RAISE_VARARGS",
    "RERAISE",
    "INTERPRETER_EXIT",
    "JUMP_FORWARD",
}
_MODULES = [
    *(
        "argparse",
        "ast",
        "asyncio.tasks",
        "asyncio.streams",
        "calendar",
        "collections",
        "concurrent.futures.thread",
    ),
    *(
        "configparser",
        "contextlib",
        "copy",
        "csv",
        "dataclasses",
        "bdb",
        "difflib",
        "dis",
        "enum",
        "functools",
    ),
    *(
        "gettext",
        "heapq",
        "inspect",
        "json.decoder",
        "locale",
        "logging",
        "shlex",
        "pdb",
        "pickle",
        "pprint",
    ),
    *(
        "random",
        "re",
        "shutil",
        "statistics",
        "string",
        "subprocess",
        "tarfile",
        "tempfile",
        "textwrap",
        "threading",
    ),
    *(
        "tokenize",
        "traceback",
        "typing",
        "unittest.mock",
        "urllib.parse",
        "weakref",
        "_pydecimal",
        "zipfile",
    ),
]
_OF_OTHERS = (
    "torch.nn.functional",
    "torch.nn.modules.module",
    "transformers.models.llama.modeling_llama",
)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)


def _depths(code: types.CodeType) -> dict[int, int]:
    """By offset: the greatest depth of the stack before the instruction there; -1: the greatest
    anywhere.
    """
    found = list(dis.get_instructions(code))
    at = {each.offset: i for i, each in enumerate(found)}
    pushed = dis.stack_effect(dis.opmap["RETURN_GENERATOR"])
    # generators, coroutines, asynchronous generators
    begin = 1 if code.co_flags & 0x2A0 and not pushed else 0
    work = [(0, begin)]
    work += [
        (at[each.target], each.depth + 1 + each.lasti) for each in dis._parse_exception_table(code)
    ]
    depths: dict[int, int] = {}
    most = begin
    while work:
        i, depth = work.pop()
        while depths.get(found[i].offset, -1) < depth:
            each = found[i]
            depths[each.offset] = depth
            arg = each.arg if each.opcode >= dis.HAVE_ARGUMENT else None
            if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
                jumped = depth + dis.stack_effect(each.opcode, arg, jump=True)
                most = max(most, jumped)
                work.append((at[each.argval], jumped))
            if each.opname in _ENDS or each.opname.startswith("JUMP_BACKWARD"):
                break
            depth += dis.stack_effect(each.opcode, arg, jump=False)
            assert depth >= 0, (code.co_name, each)
            most = max(most, depth)
            i += 1
    return depths | {-1: most}


def _check(plain: types.CodeType, made: types.CodeType) -> None:
    old, new = _depths(plain), _depths(made)
    assert old[-1] <= plain.co_stacksize, plain.co_qualname
    assert new[-1] <= made.co_stacksize, plain.co_qualname
    units = len(made.co_code) // 2
    assert max(end for _, end, _ in made.co_lines()) == len(made.co_code)
    assert sum((byte & 7) + 1 for byte in made.co_linetable if byte & 128) == units
    before, after = list(dis._parse_exception_table(plain)), list(dis._parse_exception_table(made))
    starts = {each.start * 2 for each in bytecode.instructions(made.co_code)}
    assert [(each.depth, each.lasti) for each in before] == [
        (each.depth, each.lasti) for each in after
    ]
    for one, other in zip(before, after, strict=True):
        assert 0 <= other.start < other.end <= len(made.co_code)
        assert {other.start, other.target} <= starts
        assert old.get(one.target) == new.get(other.target)
    entries = [each.positions for each in dis.get_instructions(made) if each.argval is HOOKS.enter]
    assert len(entries) == 1
    assert entries[0] is not None
    assert entries[0].lineno is not None
    assert _unlike_ours(plain) == _unlike_ours(made)


def _unlike_ours(code: types.CodeType) -> list[tuple[Any, ...]]:
    """The instructions that are never inserted nor replaced: what they are called, with lines and
    columns.
    """
    kept = {
        "STORE_FAST",
        "RETURN_VALUE",
        "BINARY_OP",
        "RAISE_VARARGS",
        "COMPARE_OP",
        "FOR_ITER",
        "STORE_ATTR",
    }
    return [
        (each.opname, *(each.positions or ()))
        for each in dis.get_instructions(code)
        if each.opname in kept
    ]


def _compiled(name: str) -> types.CodeType:
    path = importlib.import_module(name).__file__
    assert path is not None
    with open(path, encoding="utf-8") as file:
        return compile(file.read(), path, "exec")


@pytest.mark.parametrize("name", [*_MODULES, *_OF_OTHERS])
def test_every_function_of_a_module_keeps_its_depths_and_tables(name: str) -> None:
    if name in _OF_OTHERS:
        pytest.importorskip(name.partition(".")[0])
    checked = 0
    for plain in _codes(_compiled(name)):
        made = instrumented(plain, HOOKS)
        assert rewriter.is_instrumented(made, HOOKS)
        _check(plain, made)
        checked += 1
    assert checked > 3


def test_nothing_in_place_of_nothing_gives_the_same_code() -> None:
    for name in _MODULES[:12]:
        for plain in _codes(_compiled(name)):
            old = bytecode.instructions(plain.co_code)
            blocks = [plain.co_code[2 * each.start : 2 * each.end] for each in old]
            made = bytecode.reassembled(plain, old, blocks, plain.co_consts, 0)
            assert made.co_code == plain.co_code
            assert made.co_exceptiontable == plain.co_exceptiontable
            assert list(made.co_positions()) == list(plain.co_positions())


@pytest.mark.parametrize("arg", [0, 1, 255, 256, 65535, 65536, 1 << 24, (1 << 31) - 1])
@pytest.mark.parametrize("least", [0, 1, 3])
def test_an_instruction_is_read_as_it_was_written(arg: int, least: int) -> None:
    for name in ("LOAD_CONST", "CALL", "LOAD_GLOBAL"):
        units = bytecode.encoded(dis.opmap[name], arg, least)
        (read,) = bytecode.instructions(units)
        assert read == (0, len(units) // 2, dis.opmap[name], arg)
        assert units[: 2 * least : 2] == bytes([dis.EXTENDED_ARG]) * least


def test_a_table_of_lines_of_another_length_is_made_as_long_as_the_code() -> None:
    def plain(x: int) -> int:
        x += 1
        return x

    code = plain.__code__
    for table in (code.co_linetable + bytes([0x80 | 13 << 3 | 7, 0]), code.co_linetable[:4]):
        made = instrumented(code.replace(co_linetable=table), HOOKS)
        assert (
            sum((byte & 7) + 1 for byte in made.co_linetable if byte & 128)
            == len(made.co_code) // 2
        )
    forty_on_thirty_back = bytes(
        [0x80 | 13 << 3, 80 & 63 | 64, 80 >> 6, 0x80 | 13 << 3 | 7, 2 * 30 + 1]
    )
    made = instrumented(code.replace(co_linetable=forty_on_thirty_back), HOOKS)
    first = code.co_firstlineno
    lines = [line for _, _, line in made.co_lines() if line is not None]
    assert (lines[0], lines[-1]) == (first + 40, first + 10)


def test_an_unknown_version_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytecode, "CHECKED_VERSIONS", ((2, 7),))
    monkeypatch.setattr(rewriter, "CHECKED_VERSIONS", ((2, 7),))

    def plain() -> int:
        return 1

    with pytest.raises(
        UnsupportedError, match=r"bytecode, which it supports for CPython 2.7; this is cpython"
    ):
        instrumented(plain.__code__, HOOKS)
