"""A store baked ahead of calls: another process traces nothing, and where it is certified closed,
no call can miss.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape import Dim, MissError, Traffic, events
from symshape.store.bundles import export_to, import_from
from symshape.store.disk import CERTIFICATE, DiskStore
from symshape.store.ranks import Ranks
from tests.symshape.store.storing import compiled, counts

N = Dim("n", min=2, max=64)


def halves(x: torch.Tensor) -> torch.Tensor:
    return x.view(2, -1) * 2 if x.shape[0] % 2 == 0 else x[1:].view(2, -1)


def three_ways(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 40:
        return x.sum(0, keepdim=True)
    return x * 2 if x.shape[0] % 3 else x + 1


def needs_pairs(x: torch.Tensor) -> torch.Tensor:
    return x.view(-1, 2).sum(1)


def _bake(fn: Any, store: Path, sizes: Any = None, dim: Dim = N, **options: Any) -> symshape.Baked:
    traffic = None if sizes is None else Traffic.of(sizes, (dim.name,))
    return symshape.bake(
        fn, (torch.ones(4),), traffic=traffic, dynamic={"x": {0: dim}}, store=store, **options
    )


def _reader(fn: Any, store: Any, dim: Dim = N) -> Any:
    return compiled(fn, store, dynamic={"x": {0: dim}}, options={"on_miss": "error"})


def test_traffic_is_served_without_a_trace(tmp_path: Path) -> None:
    baked = _bake(halves, tmp_path, [4, 6, 6, 9])
    assert (baked.complete, baked.asked, baked.traced, baked.added) == (True, 3, 2, ())
    fn = _reader(halves, tmp_path)
    with torch.no_grad():
        for n in range(2, 65):
            x = torch.arange(n * 1.0)
            torch.testing.assert_close(fn(x), halves(x))
    assert counts(fn) == (0, 2)
    assert baked.closed  # proven: both ways are stored
    assert "2 of" not in str(baked)
    assert "3 of 3" in str(baked)


def test_a_hole_is_named_and_closed(tmp_path: Path) -> None:
    open_ = _bake(three_ways, tmp_path, [4])
    assert open_.complete
    assert not open_.closed
    (proof,) = open_.proofs
    missing = proof.missing["n"]
    assert missing > 40 or missing % 3 == 0  # what the one program is not for
    assert f"no entry serves n = {missing}" in proof.reason
    assert not list(DiskStore(tmp_path).all(CERTIFICATE))
    with torch.no_grad(), pytest.raises(MissError):
        _reader(three_ways, tmp_path)(torch.ones(missing))
    closed = _bake(three_ways, tmp_path, [4], certify=True)
    assert closed.closed
    assert closed.traced == len(closed.added) == 2
    assert len(list(DiskStore(tmp_path).all(CERTIFICATE))) == 1
    with torch.no_grad():
        fn = _reader(three_ways, tmp_path)
        for n in range(2, 65):
            torch.testing.assert_close(fn(torch.ones(n)), three_ways(torch.ones(n)))
    assert counts(fn) == (0, 3)


def test_more_programs_than_a_folder_keeps_of_one_function(tmp_path: Path) -> None:
    """What is baked or imported stays, however many programs there are."""
    store = DiskStore(tmp_path / "store", most_of_one=2)
    baked = _bake(three_ways, store, certify=True)  # type: ignore[arg-type]
    assert (baked.closed, baked.traced, store.most_of_one) == (True, 3, 2)
    export_to(store, tmp_path / "file")
    other = DiskStore(tmp_path / "other", most_of_one=1)
    assert import_from(other, tmp_path / "file") == len(list(other.all())) == 3
    for each in (store, other):
        fn = _reader(three_ways, each)
        with torch.no_grad():
            for n in (2, 3, 41):
                assert torch.equal(fn(torch.ones(n)), three_ways(torch.ones(n)))
        assert counts(fn) == (0, 3)


def test_what_the_program_refuses_leaves_a_hole(tmp_path: Path) -> None:
    baked = _bake(needs_pairs, tmp_path, [4], certify=True)
    (proof,) = baked.proofs
    assert proof.closed is False
    assert proof.missing["n"] % 2 == 1
    assert "declare a narrower Dim" in proof.reason
    even = Dim("n", min=2, max=64, multiple_of=2)
    assert _bake(needs_pairs, tmp_path, [4], even).closed


def test_sizes_that_cannot_be_traced_are_told(tmp_path: Path) -> None:
    baked = _bake(needs_pairs, tmp_path, [4, 7])
    (unserved,) = baked.unserved
    assert unserved.sizes == {"n": 7}
    assert "n is no multiple of 2" in unserved.reason
    assert not baked.complete


def test_programs_that_cannot_be_kept_are_told(tmp_path: Path) -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x + self.calls

    baked = _bake(Counting(), tmp_path, [4, 5], certify=True)
    assert not baked.complete
    assert {each.sizes["n"] for each in baked.unserved} == {4, 5}
    assert all("writes outside its arguments" in each.reason for each in baked.unserved)
    assert not baked.closed


def test_a_certificate_is_proven_again_and_never_believed(tmp_path: Path) -> None:
    assert _bake(three_ways, tmp_path, [4], certify=True).closed
    seen: list[Any] = []
    unsubscribe = events.subscribe(seen.append)
    _reader(three_ways, tmp_path)
    unsubscribe()
    (told,) = [each for each in seen if isinstance(each, events.Certified)]
    assert (told.function, told.entries) == ("three_ways", 3)
    assert "x.size(0) <= 64" in told.contract
    store = DiskStore(tmp_path)
    gone = next(iter(store.all()))
    content = store.read(gone.address, gone.digest)
    store.remove(gone.address, gone.digest)
    with pytest.raises(
        MissError,
        match=f"no longer closed: no entry serves x.size.0. = .*gone: entry {gone.digest[:12]}",
    ):
        _reader(three_ways, tmp_path)
    store.write(gone.address, content)
    _reader(three_ways, tmp_path)
    (kept,) = store.all(CERTIFICATE)
    path = tmp_path / kept.address / f"{kept.digest}{CERTIFICATE}"
    path.write_bytes(path.read_bytes().replace(b"64", b"99"))
    with pytest.raises(MissError, match="cannot be used: the file is damaged"):
        _reader(three_ways, tmp_path)
    assert _bake(three_ways, tmp_path, [4]).closed  # baking puts it right
    _reader(three_ways, tmp_path)


def test_modes_and_equal_sizes(tmp_path: Path) -> None:
    def add(x: torch.Tensor, y: torch.Tensor, k: int) -> torch.Tensor:
        return (x + y) * k

    rows, dynamic = (
        Dim("rows", min=1),
        {"x": {0: Dim("rows", min=1)}, "y": [Dim("rows", min=1), None]},
    )
    modes = ("no_grad", "inference", "grad")
    arguments = (torch.ones(3, 2), torch.ones(3, 2), 2)
    baked = symshape.bake(add, arguments, dynamic=dynamic, store=tmp_path, modes=modes)
    assert (baked.closed, baked.traced, len(baked.proofs)) == (True, 3, 3)
    assert rows.name in str(dynamic)
    fn = symshape.compile(add, dynamic=dynamic, store=tmp_path, options={"on_miss": "error"})
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            x = torch.randn(1, 2)
            torch.testing.assert_close(fn(x, x.clone(), 2), add(x, x, 2))
    with pytest.raises(MissError, match=r"x\.size\(0\) = 4"):
        fn(torch.ones(4, 2), torch.ones(1, 2), 2)  # no call of the contract
    with pytest.raises(MissError, match="k = 3"):
        fn(torch.ones(4, 2), torch.ones(4, 2), 3)
    assert fn.stats().traces == 0


def test_what_makes_no_sense(tmp_path: Path) -> None:
    with pytest.raises(
        symshape.InputError, match=r"sizes of 'm', but dynamic names n: .*--dynamic"
    ):
        symshape.bake(
            halves,
            (torch.ones(4),),
            dynamic={"x": {0: N}},
            traffic=Traffic.of([3], ("m",)),
            store=tmp_path,
        )
    with pytest.raises(symshape.InputError, match=r"args must be a tuple .* \(x,\), not a Tensor"):
        symshape.bake(torch.sin, torch.ones(2), store=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(
        symshape.InputError, match=r"traffic must be a symshape.Traffic, .*, not \[3\]"
    ):
        symshape.bake(torch.sin, (torch.ones(2),), traffic=[3], store=tmp_path)  # type: ignore[arg-type]
    for nowhere in (False, Ranks()):
        with pytest.raises(symshape.InputError, match="bake fills a folder or another store, not"):
            _bake(halves, nowhere)  # type: ignore[arg-type]
    with pytest.raises(
        symshape.InputError, match="modes are some of no_grad, inference, grad, not 'train'"
    ):
        _bake(halves, tmp_path, modes=("train",))
    sliced = torch.ones(8, 8)[:, :4]
    baked = symshape.bake(
        lambda x: x * 2,
        (sliced,),
        dynamic={"x": {0: N}},
        traffic=Traffic.of([3], ("n",)),
        store=tmp_path,
    )
    assert "x is not contiguous" in baked.unserved[0].reason
    assert baked.proofs[0].closed is None


_PROGRAM = """
import torch
from symshape import Dim

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
    def forward(self, x):
        y = self.inner(x)
        return y if x.shape[0] > 8 else y.relu()

DYNAMIC = {"x": {0: Dim("batch", min=1, max=32)}}

def make():
    torch.manual_seed(0)
    return Model().eval(), (torch.ones(3, 4),), {}, DYNAMIC

def serve(store):
    import symshape
    model = make()[0]
    fn = symshape.compile(model, dynamic=DYNAMIC, store=store, options={"on_miss": "error"})
    with torch.no_grad():
        same = all(torch.equal(fn(x), model(x)) for x in (torch.randn(n, 4) for n in range(1, 33)))
    try:
        with torch.no_grad():
            fn(torch.ones(33, 4))
        message = ""
    except symshape.MissError as error:
        message = str(error)
    found = symshape.compiled_of(fn).stats()
    return [same, found.traces, found.loaded, message]
"""


def test_from_the_command_line_to_what_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is baked serves the program imported anew, from another folder, moved there as one
    file.
    """
    from typer.testing import CliRunner

    from symshape.frontends.cli.commands import app

    (tmp_path / "baked_program.py").write_text(_PROGRAM)
    (tmp_path / "seen.csv").write_text("size,other\n3,1\n5,2\n3,1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(*words: Any) -> Any:
        return CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "200"})

    words = (
        "baked_program:make",
        "--traffic",
        "seen.csv",
        "--column",
        "batch=size",
        "--store",
        "store",
    )
    try:
        result = run("bake", *words)
        assert result.exit_code == 0, result.output
        for said in ("2 of 2", "closed for no_grad", "no: no entry serves batch = "):
            assert said in result.output
        assert (
            run("bake", "baked_program:make", "--traffic", "seen.csv", "--store", "store").exit_code
            == 2
        )
        result = run("bake", *words, "--certify", "--most", "0")
        assert result.exit_code == 2
        result = run("bake", *words, "--certify", "--json")
    finally:
        sys.modules.pop("baked_program", None)
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert (found["complete"], found["closed"], found["traced"], found["asked"]) == (
        True,
        True,
        1,
        2,
    )
    assert run("cache", "export", "all.bundle", "--store", "store").output == "2 entries\n"
    assert run("cache", "import", "all.bundle", "--store", "there").output == "2 entries\n"
    verified = run("cache", "verify", "--store", "there")
    assert verified.exit_code == 0
    assert "Model is closed for x.size(0) >= 1, x.size(0) <= 32" in verified.output
    try:
        same, traces, loaded, message = importlib.import_module("baked_program").serve("there")
    finally:
        sys.modules.pop("baked_program", None)
    assert (same, traces, loaded) == (True, 0, 2)
    assert "Model with x.size(0) = 33, x.size(1) = 4" in message
    assert "nearest passing input: x.size(0) = 32" in message
    lost = next((tmp_path / "there").glob("*/*.entry"))
    lost.unlink()
    verified = run("cache", "verify", "--store", "there")
    assert verified.exit_code == 1
    assert f"gone: entry {lost.stem[:12]}" in verified.output
