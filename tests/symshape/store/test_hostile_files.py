"""Files of a store that someone else wrote: what is shown of one is escaped, and no type of its
parts is believed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

import meta_fns
import symshape
from symshape import events
from symshape.frontends.cli import store_commands
from symshape.frontends.cli.store_commands import list_entries, verify
from symshape.graph.fast_calls import within_memory
from symshape.store.certificates import from_bytes as certificate_from_bytes
from symshape.store.entry_format import read_header
from symshape.store.entry_text import show
from symshape.store.store_errors import Differs, EntryError
from tests.symshape.store.storing import compiled, entries, told

ESCAPE = "\x1b]0;owned\x07\u202e\n  fake line\ud800\x9b31m"
WRONG = (
    None,
    True,
    -1,
    1 << 70,
    1.5,
    "",
    "x",
    [],
    [[]],
    [1] * 40,
    {},
    {"x": 1},
    ["tensor", 1, 2, 3, 4, 5, 6],
)
SCALE = 1.5


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = torch.relu(self.inner(x))
        torch._check(x.shape[0] < 100, lambda: f"too many: {x.shape[0]}")
        return found * SCALE


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    folder = tmp_path_factory.mktemp("store")
    compiled(Model(), folder)(torch.ones(3, 4))
    (path,) = entries(folder)
    return path.parent.name, path.read_bytes()


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(data) if type(data) is dict else range(len(data)):
        yield data, key
        if type(data[key]) in (dict, list):
            yield from _places(data[key])


def _changed(content: bytes, number: int, value: Any) -> bytes | None:
    """The entry with one of its parts replaced; None where there is no part of this number."""
    lines = [json.loads(each) for each in content.splitlines()]
    places = [each for line in lines for each in _places(line)]
    if number >= len(places):
        return None
    owner, key = places[number]
    owner[key] = value
    return "\n".join((*map(json.dumps, lines), "")).encode()


def _strings(content: bytes) -> list[int]:
    lines = [json.loads(each) for each in content.splitlines()]
    places = [each for line in lines for each in _places(line)]
    return [i for i, (owner, key) in enumerate(places) if type(owner[key]) is str]


def _put(folder: Path, address: str, content: bytes) -> Path:
    path = folder / address / f"{hashlib.sha256(content).hexdigest()}.entry"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_bytes(content)
    path.chmod(0o600)
    return path


Run = Callable[[Path, Path], str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the commands that show a store and one entry of it; returns what they print."""
    monkeypatch.setenv("COLUMNS", "200")

    def commands(folder: Path, path: Path) -> str:
        for command in (
            lambda: store_commands.show(path),
            lambda: list_entries(folder),
            lambda: verify(folder),
        ):
            with contextlib.suppress(typer.Exit):
                command()
        captured = capsys.readouterr()
        found = captured.out + captured.err
        assert all(each.isprintable() or each == "\n" for each in found), found
        assert "\n  fake line" not in found, found
        return found

    return commands


@pytest.mark.slow
def test_every_text_of_an_entry_is_shown_escaped(
    content: tuple[str, bytes], tmp_path: Path, run: Run
) -> None:
    address, whole = content
    shown = 0
    for number in _strings(whole)[::2]:
        changed = _changed(whole, number, ESCAPE)
        assert changed is not None
        folder = tmp_path / str(number)
        shown += "owned" in run(folder, _put(folder, address, changed))
    assert shown > 10


@pytest.mark.slow
def test_no_part_of_an_entry_is_believed_to_be_of_a_type(
    content: tuple[str, bytes], tmp_path: Path, run: Run
) -> None:
    address, whole = content
    rng = random.Random(0)
    lines = [json.loads(each) for each in whole.splitlines()]
    header, total = (
        sum(1 for _ in _places(lines[0])),
        sum(1 for line in lines for _ in _places(line)),
    )
    for number in (*range(header), *rng.sample(range(header, total), 100)):
        changed = _changed(whole, number, rng.choice(WRONG))
        assert changed is not None
        folder = tmp_path / str(number)
        run(folder, _put(folder, address, changed))


@pytest.mark.parametrize(
    "part", ["environment", "structure", "slots", "guards", "function", "address"]
)
@pytest.mark.parametrize("value", WRONG, ids=lambda each: str(each)[:12])
def test_a_header_of_wrong_types_is_no_entry(
    content: tuple[str, bytes], part: str, value: Any
) -> None:
    lines = [json.loads(each) for each in content[1].splitlines()]
    before = lines[0][part]
    lines[0][part] = value
    changed = "\n".join((*map(json.dumps, lines), "")).encode()
    if type(value) is type(before) and part not in ("structure", "slots", "guards"):
        read_header(changed)
    elif not (value == [] and part in ("slots", "guards")):
        with pytest.raises(EntryError):
            read_header(changed)


def test_errors_and_events_quote_files_escaped(content: tuple[str, bytes], tmp_path: Path) -> None:
    assert "\x1b" not in str(EntryError(ESCAPE))
    assert "\x1b" not in str(Differs(ESCAPE))
    address, whole = content
    found: list[Any] = []
    for number in _strings(whole)[1::7]:
        changed = _changed(whole, number, ESCAPE)
        assert changed is not None
        _put(tmp_path, address, changed)
        with told() as said:
            compiled(Model(), tmp_path)(torch.ones(3, 4))
        found += said
    assert any(isinstance(each, (events.StoreFailed, events.NotServed)) for each in found)
    assert not [each for each in found if "\x1b" in str(each)]
    with pytest.raises(symshape.MissError) as error:
        compiled(Model(), tmp_path, options={"on_miss": "error"})(
            torch.ones(7, 4, requires_grad=True)
        )
    assert "\x1b" not in str(error.value)


def _with_op(content: bytes, op: str, *args: Any) -> bytes:
    """The entry with its last step calling another op, on the value that the step reads and on
    these arguments.
    """
    lines = [json.loads(each) for each in content.splitlines()]
    graph = lines[1]["graph"]
    step = [each for each in graph["steps"] if "op" in each][-1]
    graph["ops"].append(op)
    value = next(each for each in step["args"] if type(each) is dict and "value" in each)
    step["op"], step["args"] = len(graph["ops"]) - 1, [value, *args]
    return "\n".join((*map(json.dumps, lines), "")).encode()


REFUSED = (
    "resize_.default",
    "_unsafe_masked_index.default",
    "lu_unpack.default",
    "_cdist_backward.default",
    "_embedding_bag_backward.default",
    "adaptive_max_pool2d_backward.default",
    "segment_reduce.default",
)


@pytest.mark.parametrize("op", REFUSED)
def test_ops_that_trust_their_arguments_are_refused(content: tuple[str, bytes], op: str) -> None:
    with pytest.raises(EntryError, match="operator"):
        show(_with_op(content[1], op, [5000], [1]))


@pytest.mark.parametrize(
    "op", ["_reshape_alias.default", "as_strided.default", "as_strided_copy.default"]
)
def test_no_entry_reads_beyond_the_storage(
    content: tuple[str, bytes], tmp_path: Path, op: str
) -> None:
    address, whole = content
    model = Model()
    _put(tmp_path, address, _with_op(whole, op, [5000], [1]))
    fn, x = compiled(model, tmp_path), torch.ones(3, 4)
    assert torch.equal(fn(x), model(x))  # the program raises, and the function itself runs instead
    assert fn.stats().loaded == 1
    (entry,) = fn.entries
    with pytest.raises(
        RuntimeError, match=r"invalid for input of size 12|out of bounds for storage"
    ):
        entry.program.run([x], [3, 4])


def test_batch_norm_of_an_entry_is_checked_when_it_runs(tmp_path: Path) -> None:
    model = torch.nn.BatchNorm1d(4, affine=False).eval()
    compiled(model, tmp_path)(torch.ones(3, 4))
    fn = compiled(model, tmp_path)
    assert torch.equal(fn(torch.ones(5, 4)), model(torch.ones(5, 4)))
    assert fn.stats().loaded == 1
    (node,) = [each for each in fn.entries[0].program.graph.nodes if "batch_norm" in str(each.op)]
    assert node.checked
    check = within_memory(torch.ops.aten.native_batch_norm.default)
    channels = torch.ones(4)
    assert len(check(torch.ones(3, 4), None, None, channels, channels, False, 0.1, 1e-5)) == 3
    for short in (torch.ones(3), torch.ones(0)):
        with pytest.raises(meta_fns.ShapeError):
            check(torch.ones(3, 4), None, None, short, channels, False, 0.1, 1e-5)
        with pytest.raises(meta_fns.ShapeError):
            check(
                torch.ones(3, 4),
                weight=None,
                bias=None,
                running_mean=channels,
                running_var=short,
                training=False,
                momentum=0.1,
                eps=1e-5,
            )


def test_a_source_file_that_an_entry_names_is_no_way_to_other_files(
    content: tuple[str, bytes],
) -> None:
    changed = content[1].replace(json.dumps(__file__).encode(), b'"/etc/passwd"')
    assert changed != content[1]
    assert "root:" not in show(changed)


@pytest.mark.parametrize("part", range(8))
def test_a_certificate_of_wrong_types(part: int) -> None:
    header = {
        "format": "symshape certificate",
        "version": 1,
        "function": "f",
        "address": "0" * 32,
        "structure": {},
    }
    body = {"sources": "{}", "contract": "{}", "entries": []}
    names = [*((header, each) for each in header), *((body, each) for each in body)]
    for value in WRONG:
        owner, name = names[part]
        before, owner[name] = owner[name], value  # type: ignore[index]
        lines = "\n".join((json.dumps(header), json.dumps(body), "")).encode()
        with pytest.raises(EntryError):
            certificate_from_bytes(lines)
        owner[name] = before  # type: ignore[index]
