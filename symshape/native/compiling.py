"""The program that compiles the extensions: one at a time on a machine, in a process of its own.

It imports the standard library alone, so that a background process costs no second import of torch.
The plan comes as JSON on standard input; :func:`symshape.native.building.plan` says what is in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_AT_ONCE = 2
"""The number of compilers that run at once; each takes up to 1 GB of memory for torch's headers."""
_LONGEST = 1800.0
"""The time limit of a compiler, in seconds."""
_LINES = 12
"""The number of lines of a compiler's message that are kept."""


def compile_all(
    plan: Mapping[str, Any],
    *,
    again: bool,
    wait: bool,
    say: Callable[[str], object] = lambda text: None,
) -> bool:
    """Compile what the plan asks for into its folder, unless it exists; return whether this process
    did it.

    Args:
        plan: what to compile, and where to.
        again: a folder that is there is replaced.
        wait: wait for another process that compiles the same; otherwise leave it to that process.
        say: told of each step.

    Raises:
        OSError: the folder cannot be written.
    """
    import fcntl  # not there on Windows, where nothing is compiled

    folder = Path(plan["folder"])
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(
        folder.with_name(f"{folder.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        if folder.exists() and not again:
            return False
        _publish(plan, folder, say)
        return True
    finally:
        os.close(handle)  # lets go of the lock


def _publish(plan: Mapping[str, Any], folder: Path, say: Callable[[str], object]) -> None:
    """Compile beside the folder, try what came of it, and put everything there at once."""
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
    unfinished.mkdir(mode=0o700)
    try:

        def step(name: str) -> str | None:
            say(f"compiling {name}")
            return _run(plan["commands"][name], unfinished)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = dict(zip(plan["commands"], pool.map(step, plan["commands"]), strict=True))
        made = [name for name, error in answers.items() if error is None]
        if made:
            say("importing what was compiled")
            broken = _run([*plan["check"], *made], unfinished)
            answers.update(dict.fromkeys(made, broken))
        errors = {name: error for name, error in answers.items() if error is not None}
        for path in unfinished.iterdir():
            if path.name.removesuffix(plan["suffix"]) in errors:
                path.unlink()
            else:
                path.chmod(0o700)
        report = {"errors": errors, "compiler": plan["compiler"]}
        path = unfinished / plan["report"]
        path.write_text(json.dumps(report, indent=1), encoding="utf-8")
        path.chmod(0o600)
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _run(command: list[str], folder: Path) -> str | None:
    """Run a command; return None, or the end of what it said when it failed."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_LONGEST,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    said = done.stdout.decode(errors="replace").strip().splitlines()
    at = next(
        (i for i, line in enumerate(said) if "error" in line.lower()), max(0, len(said) - _LINES)
    )
    return "\n".join(said[at : at + _LINES]) or f"{command[0]} ended with status {done.returncode}"


def main() -> None:
    """Read a plan, go on in the background, and compile it at the lowest priority."""
    request = json.loads(sys.stdin.buffer.read())
    if os.fork():
        os._exit(0)  # the program that asked goes on at once, and has no child to wait for
    os.nice(19)
    # the folder cannot be written any more: a later process says so
    with contextlib.suppress(OSError):
        compile_all(request["plan"], again=request["again"], wait=False)


if __name__ == "__main__":
    main()
