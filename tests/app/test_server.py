"""Settings of the server, and errors of a page."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from acenode_app import server
from acenode_app.services import Services
from streamlit.testing.v1 import AppTest

Page = Callable[..., AppTest]


def test_server_listens_on_localhost_only() -> None:
    settings = server.settings()
    assert settings["server.address"] == "127.0.0.1"
    assert settings["browser.gatherUsageStats"] is False


def test_page_error_is_shown_in_one_line(page: Page, services: Services, monkeypatch: pytest.MonkeyPatch,
                                                  capsys: pytest.CaptureFixture) -> None:
    import streamlit as st

    shown: list[str] = []
    monkeypatch.setattr(st, "error", lambda text, **_: shown.append(text))
    assert server.on_script_error(ValueError("a bug")) is True
    assert "ValueError" in shown[0]
    assert "a bug" in capsys.readouterr().err
