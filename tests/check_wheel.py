"""Build the wheel, install it into an empty environment, and use it from an empty folder as a newcomer would.

Checks that the wheel installs no top-level names but acenode and acenode_app, that `acenode demo` trains and prints its
table, that `acenode app` serves its first page and an experiment's page to a real browser without an error, and that
the recorded runs print a table and export a report whose player draws.
`make check-wheel` runs it; it needs Chromium, and installs torch once more, which takes a few minutes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from acenode.bench.browser import browser

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"acenode", "acenode_app"}
NEEDED = ("acenode_app/pages/home.py", "acenode_app/config.toml", "acenode_app/assets/page.css",
          "acenode/accelerate/gru_ode_bayes/pass.c")
PIP = ["-m", "pip", "--quiet", "--disable-pip-version-check"]


def build(folder: Path) -> Path:
    """Build the wheel from a copy of what git tracks, and check what is in it."""
    source = folder / "source"
    source.mkdir()
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "--null", "-T", "-", "-cf", str(folder / "source.tar")], cwd=ROOT, input=listed, check=True)
    subprocess.run(["tar", "-xf", str(folder / "source.tar"), "-C", str(source)], check=True)
    subprocess.run([sys.executable, *PIP, "wheel", "--no-deps", "-w", str(folder), str(source)], check=True)
    wheel = next(folder.glob("acenode-*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert top == PACKAGES, f"the wheel installs {sorted(top)}"
    missing = [name for name in NEEDED if name not in names]
    assert not missing, f"the wheel lacks {missing}"
    print(f"built {wheel.name}: {len(names)} files, {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel with the app into an empty environment; returns its bin folder."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
    python = folder / "env" / "bin" / "python"
    constraints = ["-c", str(ROOT / "constraints.txt")]
    subprocess.run([python, *PIP, "install", *constraints, "torch"], check=True)
    subprocess.run([python, *PIP, "install", *constraints, f"acenode[app] @ file://{wheel}"], check=True)
    return python.parent


@contextmanager
def served(bin: Path, folder: Path, port: int, environment: dict[str, str]) -> Iterator[str]:
    """Start `acenode app` in the folder and wait until it prints its address, which has the token."""
    output = folder.parent / "server.log"
    with open(output, "wb") as log:
        process = subprocess.Popen([bin / "acenode", "app", "--headless", "--port", str(port)], cwd=folder,
                                   env=environment, stdout=log, stderr=log)
        try:
            for _ in range(600):
                assert process.poll() is None, f"the server ended:\n{output.read_text()}"
                found = re.search(r"http://\S+\?token=\S+", output.read_text())
                if found:
                    break
                time.sleep(0.1)
            else:
                raise AssertionError(f"the server prints no address:\n{output.read_text()}")
            yield found[0]
        finally:
            process.terminate()
            process.wait(60)


def visit(page: Any, address: str, expected: str) -> None:
    """Open a page, wait for its text and check that nothing on it says error."""
    page.goto(address)
    page.wait_for_selector(f"text={expected}", timeout=60_000)
    page.wait_for_function("() => !document.querySelector('[data-testid=stStatusWidget]')", timeout=60_000)
    errors = page.locator("[data-testid=stException], [data-testid=stAlertContentError]")
    assert errors.count() == 0, errors.first.inner_text()


def check(folder: Path) -> None:
    bin = install(build(folder), folder)
    empty = folder / "empty"
    empty.mkdir()
    # Nothing of the repository may be found by accident.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "ACENODE_RUNS", "ACENODE_DATA")}
    environment |= {"HOME": str(folder), "OMP_NUM_THREADS": "1"}

    def acenode(*words: str) -> str:
        done = subprocess.run([bin / "acenode", *words], cwd=empty, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    demo = acenode("demo")
    assert "ACE-ODE-Net" in demo, demo
    print(demo, flush=True)
    table = acenode("table", "mnist", "--runs", "recorded")
    measured = [line for line in table.splitlines() if line.startswith("ACE-ODE-Net") and "epochs=40" in line]
    assert len(measured) == 1, table
    recorded = next(p.parent.name for p in (ROOT / "runs" / "paper").glob("mnist-ace-*/snapshots"))
    report = acenode("export", recorded, "--to", "html", "--runs", "recorded")
    with served(bin, empty, 8790, environment) as address, browser() as chrome:
        page = chrome.new_page(viewport={"width": 1400, "height": 1000})
        visit(page, address, "Recorded results")
        page.wait_for_function("() => document.querySelectorAll('.ace-player canvas').length > 3", timeout=60_000)
        visit(page, "http://127.0.0.1:8790/mnist", "MNIST")
        visit(page, f"file://{(empty / report).resolve()}", "ACE-ODE-Net")
        page.wait_for_function("() => document.querySelectorAll('canvas').length > 3", timeout=60_000)
    print("the installed wheel works: demo, first page, an experiment's page, recorded runs", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        check(Path(folder))
