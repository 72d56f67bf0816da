"""Services over a temporary folder, runs in every state, pages and routes without a server, and tabs of a browser."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from acenode_app import estimates
from acenode_app import services as app_services
from acenode_app.services import Services
from quick_settings import QUICK
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from acenode import experiments
from acenode.bench.browser import CURVES, Served, server
from acenode.config import Config
from acenode.execution.estimate import Estimate
from acenode.execution.execute import create, execute
from acenode.files import write_json
from acenode.runs.process import identity
from acenode.runs.recorded import recorded_runs
from acenode.runs.store import Run, RunStore

MAIN = Path(__file__).parents[2] / "app" / "main.py"
Page = Callable[..., AppTest]
WAIT = 180_000  # milliseconds; generous, for a busy machine
QUICK_ACE = {**QUICK, "analysis": True, "solver": "rk4", "step_size": 0.5, "device": "cpu"}


def config(method: str = "ace", **given: Any) -> Config:
    return experiments.get("mnist").configure(method, **{**QUICK_ACE, **given})


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train three runs: ACE with two seeds, and ODE-Net."""
    root = tmp_path_factory.mktemp("trained")
    store = RunStore(root)
    for made in (config(), config(seed=1), config("odenet")):
        assert execute(create(store, made), root / "data").state == "finished"
    return root


@pytest.fixture(scope="session")
def served(chrome: Any, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve a copy of the trained runs with the recorded ones beside it; all browser tests of a process share it."""
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(trained, folder / "runs", ignore=shutil.ignore_patterns("data"))
    with server(folder / "runs", ACENODE_RECORDED=str(recorded_runs()), ACENODE_DATA=str(folder / "data"),
                OMP_NUM_THREADS="1") as found:
        yield found


@pytest.fixture(scope="session")
def own_runs(served: Served) -> RunStore:
    return RunStore(served.process.args[-1])  # type: ignore[arg-type, index, union-attr]


def wait_for_times() -> None:
    """Wait until nothing is being timed."""
    end = time.monotonic() + 60
    while estimates._queued:
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def minute_estimates(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every run without similar ones be estimated at one minute, at once, instead of timing iterations."""
    estimates._timed.clear()
    monkeypatch.setattr(estimates, "DELAY", 0.0)
    monkeypatch.setattr(estimates, "estimate", lambda configs, *_: Estimate(
        len(configs), 60.0 * len(configs), "timing 1 configuration", dict.fromkeys(configs, 60.0)))
    yield
    wait_for_times()  # before the estimate is the real one again


@pytest.fixture
def recorded_folder(request: pytest.FixtureRequest) -> Path | None:
    """Return the folder of recorded runs that the pages show: none, unless a module has SHOWS_RECORDED = True."""
    return recorded_runs() if getattr(request.module, "SHOWS_RECORDED", False) else None


@pytest.fixture
def services(tmp_path: Path, recorded_folder: Path | None) -> Iterator[Services]:
    """Replace the process's services by ones over an empty folder and the recorded runs, if there are any."""
    made = Services(tmp_path / "runs", tmp_path / "data", recorded_folder)
    app_services.replace(made)
    yield made
    made.close()
    app_services.replace(None)


@pytest.fixture
def started(services: Services, monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """Return the configurations of the runs that are queued; none of them is trained."""
    found: list[Config] = []
    monkeypatch.setattr(type(services.launcher), "start", lambda self, config: found.append(config) or Any)
    return found


@dataclass(frozen=True)
class RunFolder:
    """Adds runs in various states to the folder of the services."""

    services: Services
    trained: Path

    def finished(self) -> list[Run]:
        """Copy the trained runs."""
        shutil.copytree(self.trained, self.services.store.root, dirs_exist_ok=True)
        return list(self.services.store)

    def queued(self, **given: Any) -> Run:
        """Create a run that stays queued."""
        return create(self.services.store, config(**given))

    def running(self, **status: Any) -> Run:
        """Create a run that this process appears to train, with some curves and snapshots."""
        run = self.queued()
        source = next(iter(RunStore(self.trained)))
        for part in ("metrics.jsonl", "snapshots"):
            copy = shutil.copytree if (source.path / part).is_dir() else shutil.copy
            copy(source.path / part, run.path / part)
        write_json(run.path / "status.json", {"state": "running", "error": None, "progress": 0.4, "epoch": 0,
                                              "epochs": 1, "seconds": 3.0, "seconds_left": 4.5,
                                              "heartbeat": time.time(), "process": identity(), **status})
        return run

    def failed(self, error: str = "underflow in dt at t=0.31: loosen rtol and atol") -> Run:
        """Create a run that has failed during training."""
        return self.running(state="failed", error=error)

    def foreign(self, name: str = "not-a-run", **files: str) -> Path:
        """Create a folder that is not a run; `config_json="{"` writes a file config.json."""
        folder = self.services.store.root / name
        folder.mkdir(parents=True)
        for file, text in files.items():
            (folder / file.replace("_", ".")).write_text(text)
        return folder


@pytest.fixture
def run_folder(services: Services, trained: Path) -> RunFolder:
    services.store.root.mkdir(exist_ok=True)
    return RunFolder(services, trained)


def no_exception(app: AppTest) -> AppTest:
    """Check that the page raised nothing."""
    assert not app.exception, [e.value for e in app.exception]
    return app


def page_text(app: AppTest) -> str:
    """Return all text of a page that raised nothing, without the backslashes that keep it from being markup."""
    no_exception(app)
    parts = [*app.markdown, *app.caption, *app.info, *app.error, *app.warning, *app.title, *app.header, *app.subheader]
    return "\n".join(str(part.value) for part in parts).replace("\\", "")


def titled(fields: Any, label: str) -> Any:
    """Return the field or button with this label."""
    return next(one for one in fields if one.label == label)


def field(app: AppTest, kind: str, name: str) -> Any:
    """Return the widget of a setting."""
    return next(w for w in getattr(app, kind) if w.key and f"/{name}/" in w.key)


def open_tab(app: AppTest, title: str, page: str = "compare") -> AppTest:
    """Open a tab with charts of results; only the open one is drawn."""
    app.session_state[f"{page}/tab"] = title
    return no_exception(app.run())


@pytest.fixture
def page(services: Services) -> Page:
    """Return a function that opens a page and checks that it raised nothing: page("mnist", runs="…")."""

    def opened(name: str = "", **query: str) -> AppTest:
        app = AppTest.from_file(str(MAIN), default_timeout=60)
        for key, value in query.items():
            app.query_params[key] = value
        app._page_hash = calc_hash(name)
        return no_exception(app.run())

    return opened


class Tab:
    """A tab with helpers to press buttons, wait and evaluate JavaScript."""

    def __init__(self, chrome: Any, served: Served, scheme: str = "light") -> None:
        self.context = chrome.new_context(viewport={"width": 1400, "height": 1000}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT)
        self.served, self.errors = served, []
        self.failed: list[str] = []  # addresses of requests that were answered by an error
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("response", lambda answer: answer.status >= 400 and self.failed.append(answer.url))

    def open(self, path: str) -> Tab:
        self.page.goto(f"{self.served.url}/{path}")
        return self

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).first.click()

    def until(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        self.page.wait_for_function(f"() => {condition}", timeout=WAIT, polling=100)

    def evaluate(self, expression: str) -> Any:
        return self.page.evaluate(f"() => {expression}")

    def points(self, run: str) -> str:
        """Return the JavaScript expression for the number of steps that a run's curves have."""
        return f"{CURVES}?.__curves.points('{run}')"

    def close(self) -> None:
        """Check that nothing went wrong, and close the tab."""
        assert not self.errors, self.errors
        text = self.page.inner_text("body")
        assert "Traceback" not in text
        assert "This page failed" not in text
        self.context.close()
