"""Files that appear whole or not at all: full and read-only disks, other users, many processes,
kill -9.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from symshape.store.disk import DiskStore, default_path
from symshape.store.entry_format import digest_of
from symshape.store.store_errors import EntryError
from tests.discovery import REPOSITORY

ADDRESS = "a" * 32


def test_written_and_read(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "made" / "here")
    assert store.digests(ADDRESS) == []
    name = store.write(ADDRESS, b"content")
    assert name == digest_of(b"content")
    assert store.read(ADDRESS, name) == b"content"
    assert store.write(ADDRESS, b"content") == name
    assert [each.bytes for each in store.all()] == [7]
    assert stat.S_IMODE((tmp_path / "made" / "here").stat().st_mode) == 0o700
    store.remove(ADDRESS, name)
    store.remove(ADDRESS, name)
    assert store.digests(ADDRESS) == []


def test_the_last_used_comes_first_and_the_least_used_goes(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, most_bytes=250)
    names = []
    for i in range(2):
        names.append(store.write(ADDRESS, bytes([i]) * 100))
        os.utime(tmp_path / ADDRESS / f"{names[-1]}.entry", (i, i))
    assert store.digests(ADDRESS) == names[::-1]
    store.used(ADDRESS, names[0])
    assert store.digests(ADDRESS) == names
    third = store.write("b" * 32, b"x" * 100)
    assert {each.digest for each in store.all()} == {names[0], third}
    assert [each.digest for each in store.prune(100)] == [names[0]]


def test_few_of_one_address(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, most_of_one=3)
    for i in range(6):
        last = store.write(ADDRESS, bytes([i]))
        os.utime(tmp_path / ADDRESS / f"{last}.entry", (i, i))
    assert len(store.digests(ADDRESS)) == 3
    assert store.digests(ADDRESS)[0] == last


@pytest.mark.parametrize("name", ["../../x", "", "G" * 64, "a" * 63, "a" * 64 + "/x"])
def test_names_that_lead_elsewhere(tmp_path: Path, name: str) -> None:
    store = DiskStore(tmp_path)
    with pytest.raises(EntryError):
        store.read(ADDRESS, name)
    with pytest.raises(EntryError):
        store.read(name, "a" * 64)


def test_links_and_folders_are_not_read(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    name = store.write(ADDRESS, b"content")
    (tmp_path / ADDRESS / f"{'b' * 64}.entry").symlink_to(tmp_path / ADDRESS / f"{name}.entry")
    (tmp_path / ADDRESS / f"{'c' * 64}.entry").mkdir()
    os.mkfifo(tmp_path / ADDRESS / f"{'d' * 64}.entry")
    for other in "bcd":
        with pytest.raises((OSError, EntryError)):
            store.read(ADDRESS, other * 64)


_PLACES = ("the file", "its folder", "the store")


def _place(store: DiskStore, name: str, place: str) -> Path:
    file = store.path / ADDRESS / f"{name}.entry"
    return dict(zip(_PLACES, (file, file.parent, store.path), strict=True))[place]


@pytest.mark.parametrize("mode", [0o666, 0o660, 0o620, 0o602], ids=oct)
@pytest.mark.parametrize("place", _PLACES)
def test_files_that_others_may_write_are_not_read(tmp_path: Path, place: str, mode: int) -> None:
    store = DiskStore(tmp_path)
    name = store.write(ADDRESS, b"content")
    where = _place(store, name, place)
    before = where.stat().st_mode
    where.chmod(mode if where.is_file() else mode | 0o111)
    with pytest.raises(EntryError, match=r"other users.*chmod go-w"):
        store.read(ADDRESS, name)
    assert DiskStore(tmp_path, shared=True).read(ADDRESS, name) == b"content"
    where.chmod(before)
    assert store.read(ADDRESS, name) == b"content"


def test_files_that_others_may_read_are_read(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    name = store.write(ADDRESS, b"content")
    _place(store, name, "the file").chmod(0o644)
    _place(store, name, "its folder").chmod(0o755)
    _place(store, name, "the store").chmod(0o755)
    assert store.read(ADDRESS, name) == b"content"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
@pytest.mark.parametrize("place", _PLACES)
def test_files_of_others_are_not_read(tmp_path: Path, place: str) -> None:
    store = DiskStore(tmp_path)
    name = store.write(ADDRESS, b"content")
    os.chown(_place(store, name, place), 4321, 4321)
    with pytest.raises(EntryError, match="another user"):
        store.read(ADDRESS, name)


def test_a_disk_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="directory"):
        DiskStore(tmp_path / "file").write(ADDRESS, b"content")
    assert DiskStore(tmp_path / "file").digests(ADDRESS) == []
    DiskStore(tmp_path / "file").used(ADDRESS, "a" * 64)


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: the write breaks off in its midst."""
    store = DiskStore(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            store.write(ADDRESS, b"x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list((tmp_path / ADDRESS).iterdir()) == []
    assert store.read(ADDRESS, store.write(ADDRESS, b"x" * 100_000)) == b"x" * 100_000


def test_what_was_never_finished_goes(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    name = store.write(ADDRESS, b"content")
    left = tmp_path / ADDRESS / ".x.unfinished"
    left.write_text("half")
    assert store.digests(ADDRESS) == [name]
    store.prune()
    assert left.exists()
    store.prune(unfinished_after=-1.0)
    assert not left.exists()
    assert store.digests(ADDRESS) == [name]


def test_where_entries_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMSHAPE_STORE", "somewhere")
    assert default_path() == Path("somewhere")
    monkeypatch.delenv("SYMSHAPE_STORE")
    assert default_path().parts[-2:] == ("symshape", "entries")


# Without torch: a process that writes for ever starts in a tenth of a second.
_WRITER = """
import importlib.util, os, sys, types
for name in ("symshape", "symshape.errors", "symshape.environment_variables", "symshape.store", *(
    "symshape.store.entry_format", "symshape.store.store_errors"
)):
    sys.modules[name] = types.ModuleType(name)
import hashlib
entry_format = sys.modules["symshape.store.entry_format"]
entry_format.LARGEST = 1 << 28
entry_format.digest_of = lambda content: hashlib.sha256(content).hexdigest()
sys.modules["symshape.store.store_errors"].EntryError = type("EntryError", (Exception,), {})
sys.modules["symshape.environment_variables"].STORE = None
sys.modules["symshape.errors"].InputError = type("InputError", (Exception,), {})
spec = importlib.util.spec_from_file_location("symshape.store.disk", "symshape/store/disk.py")
disk = sys.modules["symshape.store.disk"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(disk)
store = disk.DiskStore(sys.argv[1], most_bytes=3_000_000)
count = int(sys.argv[3])
print("ready", flush=True)
i = 0
while i != count:
    store.write("a" * 32, (sys.argv[2] + str(i)).encode() * 20_000)
    i += 1
"""


def _writer(folder: Path, seed: str, count: int = -1) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-S", "-c", _SITE + _WRITER, str(folder), seed, str(count)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )


_SITE = f"import sys; sys.path[:] = {[each for each in sys.path if each]!r}\n"


def _all_whole(folder: Path) -> int:
    store = DiskStore(folder)
    found = list(store.all())
    for each in found:
        assert digest_of(store.read(each.address, each.digest)) == each.digest
    return len(found)


def kill_writers(folder: Path, kills: int, seed: int = 0) -> int:
    """So many writers, each killed at some point; every file is whole after each.  Answers how many
    files there are.
    """
    rng = random.Random(seed)
    for i in range(kills):
        writer = _writer(folder, f"{i}-")
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        time.sleep(rng.random() * 0.03)
        writer.kill()
        writer.wait()
        writer.stdout.close()
        _all_whole(folder)
    return _all_whole(folder)


def test_killed_writers_leave_whole_files(tmp_path: Path) -> None:
    assert kill_writers(tmp_path, 6) > 0
    DiskStore(tmp_path).prune(unfinished_after=-1.0)
    assert not list(tmp_path.glob("*/.*"))


@pytest.mark.nightly
def test_two_hundred_killed_writers(tmp_path: Path) -> None:
    assert kill_writers(tmp_path, 200, 1) > 0


@pytest.mark.slow
def test_eight_writers_at_once(tmp_path: Path) -> None:
    writers = [_writer(tmp_path, f"{i % 4}-", 30) for i in range(8)]  # two and two write the same
    for each in writers:
        assert each.stdout is not None
        each.stdout.read()
        assert each.wait() == 0
        each.stdout.close()
    assert 0 < _all_whole(tmp_path) <= 64
    assert sum(each.bytes for each in DiskStore(tmp_path).all()) <= 3_000_000
    assert not list(tmp_path.glob("*/.*"))


def test_a_relative_folder_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = DiskStore("here")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    name = store.write(ADDRESS, b"content")
    assert DiskStore(tmp_path / "here").read(ADDRESS, name) == b"content"
    assert not list((tmp_path / "elsewhere").iterdir())
