"""Extensions that are compiled on first use: in the background, once, or with a word that says why
not.

A program that copies what ``make`` compiled stands in for the compiler, so that a build takes a
second.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from symshape.environment_variables import NATIVE, NATIVE_CACHE
from symshape.native import building, cache, compiling, loader
from symshape.native.extensions import EXTENSIONS, Extension
from tests.discovery import REPOSITORY

COPYING = f"""#!{sys.executable}
import os, shutil, sys
sys.path[:0] = [{str(REPOSITORY)!r}]
target = sys.argv[sys.argv.index("-o") + 1]
with open(os.environ["CALLS"], "a") as file:
    file.write(target + "\\n")
name, _, ending = target.partition({cache.SUFFIX!r})
shutil.copy(os.path.join({str(REPOSITORY)!r}, *name.split(".")) + {cache.SUFFIX!r}, target)
"""
REFUSING = f"""#!{sys.executable}
import os, sys
with open(os.environ["CALLS"], "a") as file:
    file.write("asked\\n")
sys.exit("what.cpp:7: error: no such luck")
"""
PROGRAM = """
import torch, symshape
# each loads what it needs
for fn, runner in ((lambda x: x * 2, "auto"), (lambda x: x + 1, "padded")):
    assert symshape.compile(fn, runner=runner, dynamic=True)(torch.ones(2)).shape == (2,)
from symshape.native import loader
print(sum(each.module is not None for each in loader.found_so_far()))
"""
NATIVE_ALONE = """
import os, sys, types
package = sys.modules["symshape"] = types.ModuleType("symshape")
package.__path__ = [os.path.join(sys.path[1], "symshape")]
from symshape.native import building, extensions, loader
print(sum(loader.load(each.name) is not None for each in extensions.EXTENSIONS))
building.build_missing()
building.build_missing()
"""
"""What a first compiled program asks for, without the import of all of symshape."""

Run = Callable[..., subprocess.CompletedProcess[str]]
needs_compiled = pytest.mark.skipif(
    any(loader.found(each.name).module is None for each in EXTENSIONS),
    reason="the extensions are not compiled here",
)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a wheel has it, without extensions."""
    folder = tmp_path_factory.mktemp("sources")
    leave = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    shutil.copytree(REPOSITORY / "symshape", folder / "symshape", ignore=leave)
    return folder


@pytest.fixture
def run(sources: Path, tmp_path: Path) -> Run:
    """Runs the program with a compiler, which is the text of a script, or its path."""

    def running(
        compiler: str, code: str = NATIVE_ALONE, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        given = {
            "PYTHONPATH": os.pathsep.join([str(sources), str(REPOSITORY)]),
            "CXX": script(tmp_path, compiler) if "\n" in compiler else compiler,
            "CALLS": str(tmp_path / "calls"),
            "SYMSHAPE_NATIVE": "1",
            "SYMSHAPE_NATIVE_CACHE": str(tmp_path / "cache"),
        }
        environment = {**os.environ, **given, **variables}
        command = [sys.executable, "-W", "error", "-c", code]
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )

    return running


def script(folder: Path, text: str) -> str:
    path = folder / f"compiler{abs(hash(text))}"
    if not path.exists():
        path.write_text(text)
        path.chmod(0o755)
    return str(path)


def report(folder: Path) -> dict[str, Any]:
    """What the background process wrote, once it is there."""
    until = time.monotonic() + 300
    while not (found := list((folder / "cache").glob("*/report.json"))):
        assert time.monotonic() < until, "nothing was built"
        time.sleep(0.1)
    return json.loads(found[0].read_text())  # type: ignore[no-any-return]


@pytest.mark.slow
@needs_compiled
def test_one_process_builds_and_later_ones_use_it(run: Run, tmp_path: Path) -> None:
    first = run(COPYING, PROGRAM)
    assert first.stdout.split() == ["0"]
    assert first.stderr.count("\n") == 1
    assert "in the background" in first.stderr
    assert "SYMSHAPE_NATIVE=0" in first.stderr
    assert report(tmp_path)["errors"] == {}
    later = run(COPYING, PROGRAM)
    assert (later.stdout.split(), later.stderr) == (["4"], "")
    assert len((tmp_path / "calls").read_text().split()) == 4
    folder = next((tmp_path / "cache").glob("*/"))
    assert all(each.stat().st_mode & 0o077 == 0 for each in (folder, *folder.iterdir()))
    left_out = run(COPYING, SYMSHAPE_NATIVE="0")
    assert (left_out.stdout.split(), left_out.stderr) == (["0"], "")
    next(folder.glob("*.so")).chmod(0o770)
    assert run(COPYING).stdout.split() == ["3"], "a file that a group may write is not loaded"


@pytest.mark.slow
def test_a_compiler_that_refuses_is_asked_once(run: Run, tmp_path: Path) -> None:
    run(REFUSING)
    found = report(tmp_path)
    assert found["errors"].keys() == {each.name for each in EXTENSIONS}
    assert all("error: no such luck" in each for each in found["errors"].values())
    again = run(REFUSING)
    assert again.stdout.split() == ["0"]
    assert again.stderr.count("\n") == 1, "one message a process"
    assert "what.cpp:7: error: no such luck" in again.stderr
    assert str(tmp_path / "cache") in again.stderr
    assert "python -m symshape.native" in again.stderr
    assert len((tmp_path / "calls").read_text().split()) == 4
    run(f"{REFUSING}# another one\n")
    until = time.monotonic() + 300
    while len((tmp_path / "calls").read_text().split()) < 8:
        assert time.monotonic() < until, "another compiler was not tried"
        time.sleep(0.1)


@pytest.mark.slow
def test_without_a_compiler_python_serves_and_says_so_once(run: Run) -> None:
    ran = run("/nowhere/c++")
    assert ran.stdout.split() == ["0"]
    assert ran.stderr.count("\n") == 1
    assert "CXX=/nowhere/c++ is not there; install one" in ran.stderr
    assert "SYMSHAPE_NATIVE=0 says that this is meant" in ran.stderr
    for mode in ("0", "built"):
        assert run("/nowhere/c++", SYMSHAPE_NATIVE=mode).stderr == ""


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_said(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = run(REFUSING, SYMSHAPE_NATIVE_CACHE=str(tmp_path / "file" / "cache"))
    assert ran.stdout.split() == ["0"]
    assert "SYMSHAPE_NATIVE_CACHE names another folder" in ran.stderr


# -- the program that compiles


def planned(folder: Path, seconds: float = 0.0) -> dict[str, Any]:
    """A plan whose compiler writes an empty file and notes that it ran."""
    code = (
        f"import sys, time; time.sleep({seconds}); open('one.so', 'w'); open(sys.argv[1], "
        "'a').write('x')"
    )
    return {
        "folder": str(folder / "cache" / "key"),
        "suffix": ".so",
        "report": cache.REPORT,
        "compiler": ["c++"],
        "commands": {"one": [sys.executable, "-c", code, str(folder / "calls")]},
        "check": [sys.executable, "-c", "pass"],
    }


def test_two_builders_build_once(tmp_path: Path) -> None:
    plan = planned(tmp_path, seconds=1.0)
    did: list[bool] = []
    builders = [
        threading.Thread(
            target=lambda wait=wait: did.append(compiling.compile_all(plan, again=False, wait=wait))
        )
        for wait in (True, True, False)
    ]
    for each in builders:
        each.start()
    for each in builders:
        each.join()
    assert sorted(did) == [False, False, True]
    assert (tmp_path / "calls").read_text() == "x"
    assert {each.name for each in (tmp_path / "cache" / "key").iterdir()} == {
        "one.so",
        cache.REPORT,
    }


def test_what_was_left_by_a_builder_that_was_killed_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / "cache" / "key.unfinished").mkdir(parents=True)
    (tmp_path / "cache" / "key.unfinished" / "half.so").write_text("")
    assert compiling.compile_all(planned(tmp_path), again=False, wait=False)
    assert {each.name for each in (tmp_path / "cache").iterdir()} == {"key", "key.lock"}


def test_what_cannot_be_imported_is_not_kept(tmp_path: Path) -> None:
    plan = {**planned(tmp_path), "check": [sys.executable, "-c", "import os; os.abort()"]}
    assert compiling.compile_all(plan, again=False, wait=False)
    folder = tmp_path / "cache" / "key"
    assert {each.name for each in folder.iterdir()} == {cache.REPORT}
    assert "ended with status" in json.loads((folder / cache.REPORT).read_text())["errors"]["one"]


@pytest.mark.slow
def test_a_real_compiler_builds_the_one_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NATIVE_CACHE.name, str(tmp_path / "cache"))
    try:
        plan = building.plan()
    except building.CannotBuild as error:
        pytest.skip(str(error))
    (name,) = (each.name for each in EXTENSIONS if not each.libraries)
    plan = {**plan, "commands": {name: plan["commands"][name]}}
    assert compiling.compile_all(plan, again=False, wait=True)
    assert cache.report() == {"errors": {}, "compiler": plan["compiler"]}
    assert (cache.folder() / f"{name}{cache.SUFFIX}").stat().st_mode & stat.S_IRUSR


# -- where they are looked for


def test_sources_and_headers_are_there() -> None:
    assert all((REPOSITORY / file).is_file() for each in EXTENSIONS for file in each.files)
    listed = {file for each in EXTENSIONS for file in each.files}
    found = {
        each.relative_to(REPOSITORY).as_posix()
        for each in (REPOSITORY / "symshape").rglob("*.[ch]*")
    }
    assert {each for each in found if each.endswith((".cpp", ".h"))} == listed


@pytest.mark.parametrize(
    ("said", "mode"),
    [("", "1"), ("1", "1"), ("0", "0"), ("off", "0"), ("FALSE", "0"), ("built", "built")],
)
def test_modes(said: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NATIVE.name, said)
    assert loader.mode() == mode


def test_the_key_depends_on_sources_and_torch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch

    key = cache.key.__wrapped__
    for each in EXTENSIONS:
        for file in each.files:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / file, tmp_path / file)
    monkeypatch.setattr(cache, "PACKAGES", tmp_path)
    keys = {cache.key(), key()}
    assert len(keys) == 1
    with (tmp_path / EXTENSIONS[-1].files[-1]).open("a") as file:
        file.write("// changed\n")
    keys.add(key())
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    keys.add(key())
    assert len(keys) == 3


def test_a_folder_of_others_is_not_trusted(tmp_path: Path) -> None:
    folder = tmp_path / "root" / "key"
    folder.mkdir(parents=True)
    path = folder / "one.so"
    path.write_text("")
    for each, mode in ((path, 0o600), (folder, 0o700), (folder.parent, 0o700)):
        each.chmod(mode)
    assert cache.distrust(path) is None
    for each in (path, folder, folder.parent):
        before = each.stat().st_mode
        for bit in (0o020, 0o002):
            each.chmod(before | bit)
            assert "can be written by other users" in str(cache.distrust(path))
        each.chmod(before)
    assert "No such file" in str(cache.distrust(folder / "two.so"))
    (folder / "link.so").symlink_to(path)
    assert cache.distrust(folder / "link.so") is not None


def test_one_for_another_torch_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    extension = next(each for each in EXTENSIONS if each.libraries)
    if loader.found(extension.name).module is None:
        pytest.skip("the extensions are not compiled here")
    import importlib.util

    import torch

    monkeypatch.setattr(torch, "__version__", "2.99.0")
    module, why = loader._load(extension, importlib.util.find_spec(extension.name))
    assert module is None
    assert why.startswith("compiled for torch 2.")


def test_one_that_is_blocked_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    extension = Extension("symshape.calls.compiled_reading")
    monkeypatch.setitem(sys.modules, extension.name, None)
    assert loader._look(extension).module is None
