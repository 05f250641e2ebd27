"""Running the scripts of a report outside a page, on node; whoever has none skips."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from symshape.exploring.page import asset


def run_script(folder: Path, assets: tuple[str, ...], body: str, data: Any) -> Any:
    """What ``body`` answers, a function of ``data``, with these assets before it."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node to run scripts with")
    (folder / "data.json").write_text(json.dumps(data), encoding="utf-8")
    lines = [
        'import { readFileSync } from "node:fs";',
        *(asset(f"{name}.js") for name in assets),
        f"const data = JSON.parse(readFileSync({json.dumps(str(folder / 'data.json'))}, 'utf-8'));",
        f"const answer = ((data) => {{ {body} }})(data);",
        "process.stdout.write(JSON.stringify(answer));",
    ]
    script = folder / "script.mjs"
    script.write_text("\n".join(lines), encoding="utf-8")
    done = subprocess.run(
        [node, str(script)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
