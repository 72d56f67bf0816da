"""Settings of the server, and errors of a page."""

from __future__ import annotations

import sys
from collections.abc import Callable

import acenode_app
import pytest
from acenode_app import server
from acenode_app import services as app_services
from acenode_app.access import Guard
from acenode_app.experiment import page as experiment
from acenode_app.services import Services
from streamlit.testing.v1 import AppTest

Page = Callable[..., AppTest]


def test_server_listens_on_localhost_only() -> None:
    settings = server.settings()
    assert settings["server.address"] == "127.0.0.1"
    assert settings["browser.gatherUsageStats"] is False


def test_warming_up_loads_the_page_of_an_experiment_and_the_launcher(services: Services,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FIRST_PAGE", 0.0)
    monkeypatch.setattr(acenode_app.experiment, "page", experiment)  # both are restored after the test
    monkeypatch.delitem(sys.modules, "acenode_app.experiment.page")
    server.warm_up()
    assert "acenode_app.experiment.page" in sys.modules
    assert services.launcher_ready


@pytest.mark.parametrize("name", ["", "runs", "mnist", "studies"])
def test_a_server_without_the_checks_shows_no_page(name: str, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_services, "is_served", lambda: True)
    monkeypatch.setattr(Guard, "installed", False)
    app = page(name)
    assert [e.value for e in app.error] == [app_services.UNGUARDED]
    assert not app.title
    assert not app.sidebar.caption
    monkeypatch.setattr(Guard, "installed", True)
    assert page(name).title


def test_page_error_is_shown_in_one_line(page: Page, services: Services, monkeypatch: pytest.MonkeyPatch,
                                                  capsys: pytest.CaptureFixture) -> None:
    import streamlit as st

    shown: list[str] = []
    monkeypatch.setattr(st, "error", lambda text, **_: shown.append(text))
    assert server.on_script_error(ValueError("a bug")) is True
    assert "ValueError" in shown[0]
    assert "If it fails again, the reason is in the terminal of the app." in shown[0]
    assert "a bug" in capsys.readouterr().err
