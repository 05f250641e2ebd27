"""The widget in JupyterLab and in Notebook, with a real kernel: ``make jupyter``."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from tests.discovery import REPOSITORY
from tests.symshape.exploring.browser import Page, windows

pytestmark = pytest.mark.nightly

CELL = """\
import torch, symshape
double = symshape.compile(lambda x: x * 2 if x.size(0) > 3 else x)
for n in (8, 5, 2):
    double(torch.ones(n))
symshape.explore(double)"""


PLACES = {"lab": "lab/tree/look.ipynb", "notebook": "notebooks/look.ipynb"}
"""The page of the notebook in each, by the command that serves it."""

UNTIL_SHOWN = """
// which kernel: the one that is proposed
document.querySelector(".jp-Dialog .jp-mod-accept")?.click();
const waiting = document.querySelector(".jp-Notebook .jp-InputPrompt")?.textContent === "[ ]:";
if (waiting && Date.now() - (window.asked ?? 0) > 4000) {
  // a run that comes before the kernel does nothing
  window.asked = Date.now();
  window.jupyterapp.commands.execute("notebook:run-all-cells");
}
return document.querySelector(".symshape h1") != null;
"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    yield from windows()


@pytest.fixture(scope="module", params=PLACES)
def notebook(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a notebook that is served on this machine alone, with the kernel of this
    Python.
    """
    jupyter = os.environ.get("SYMSHAPE_JUPYTER")
    if jupyter is None:
        pytest.skip("there is no Jupyter: `make jupyter`")
    folder = tmp_path_factory.mktemp(request.param)
    kernels = folder / "kernels" / "ours"
    kernels.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {
        "argv": argv,
        "display_name": "ours",
        "language": "python",
        "env": {"PYTHONPATH": str(REPOSITORY)},
    }
    (kernels / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    cells = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    cells.metadata["kernelspec"] = {"name": "ours", "display_name": "ours", "language": "python"}
    nbformat.write(cells, folder / "look.ipynb")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [
        "--no-browser",
        "--expose-app-in-browser",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--IdentityProvider.token=",
        "--allow-root",
    ]
    environment = {
        **os.environ,
        "JUPYTER_PATH": str(folder),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
    }
    command = [jupyter, request.param, *options, f"--ServerApp.root_dir={folder}"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        _until_it_answers(f"{address}/api/status", folder / "log")
        yield f"{address}/{PLACES[request.param]}"
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until_it_answers(url: str, log: Path) -> None:
    until = time.monotonic() + 90
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            assert time.monotonic() < until, log.read_text()[-2000:]
            time.sleep(0.5)


def test_the_widget_is_alive(page: Page, notebook: str) -> None:
    size = {"width": 1280, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.driver.get(notebook)
    page.wait("return document.querySelector('.jp-Notebook .cm-content') != null", 90)
    page.wait(UNTIL_SHOWN, 240)
    assert "compiled function" in page.driver.execute_script(
        "return document.querySelector('.symshape h1').innerText"
    )
    slide = """
    const slider = document.querySelector(".symshape input[type=range]");
    slider.value = arguments[0];
    slider.dispatchEvent(new Event("input"));
    return document.querySelector(".symshape .answer").innerText;
    """
    said = {n: page.driver.execute_script(slide, n) for n in (8, 6, 1)}
    assert {n: text.split(" serves")[0] for n, text in said.items()} == {
        8: "entry 0",
        6: "entry 1",
        1: "entry 2",
    }
