"""The page Playground without a browser: its routes, its texts, and where it is linked."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from acenode_app import messages, navigation, playground
from acenode_app.services import Services
from app_routes import get
from conftest import Page, page_text

from acenode.playground.learner import build
from acenode.playground.session import MOST
from acenode.playground.settings import ATTENTIONS, PROBLEM_NAMES, RANGES, PlaygroundSettings

WORDS = messages.words()["playground"]
NAME = "0123456789abcdef" * 2
JSON = "application/json"


def decoded(array: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(array["data"]), "<f4").reshape(array["shape"])


def test_frames_and_commands(services: Services) -> None:
    for message in ({"action": "pause"}, {"action": "set", "values": {"hidden": 4}}, {"action": "step"}):
        answer = get(f"/lab/playground/{NAME}", json.dumps(message).encode())
        assert (answer.status, answer.json()) == (200, {})
    frame, after = {"step": -1}, 0
    for _ in range(60):
        found = get(f"/lab/playground/{NAME}?after={after}").json()
        frame, after = found or frame, found.get("serial", after)
        if frame["step"] == 1:
            break
    assert frame["step"] == 1
    assert frame["running"] is False
    assert frame["settings"]["hidden"] == 4
    assert [network["name"] for network in frame["networks"]] == [n["name"] for n in WORDS["networks"]]
    for network in frame["networks"]:
        assert len(network["losses"]) == 1
        assert network["words"]
        h = decoded(network["picture"]["h"])
        assert h[0, :, 0].tolist() == [0.5, 1.5]
        assert decoded(network["picture"]["rates"]).shape == (1 + (network["name"] != "node"), 13, 13, 1)
    assert decoded(frame["problem"]["targets"])[0, :, 0].tolist() == [1.5, 0.5]


@pytest.mark.parametrize(("body", "kind", "words"), [
    (b'{"action": "run"}', "text/plain", "application/json"), (b"{", JSON, "JSON"), (b"[" * 5000, JSON, "JSON"),
    (b"[]", JSON, "action"), (b'{"action": "set", "values": {"hidden": 1e9}}', JSON, "whole number"),
    (b" " * 70_000, JSON, "bytes"), (b'\xff', JSON, "JSON")])
def test_bad_commands_say_what_is_wrong(body: bytes, kind: str, words: str, services: Services) -> None:
    answer = get(f"/lab/playground/{NAME}", body, kind)
    assert answer.status == 400
    assert words in answer.json()["error"]


def test_the_texts_name_what_the_library_has() -> None:
    assert tuple(p["name"] for p in WORDS["problems"]) == PROBLEM_NAMES
    assert tuple(a["name"] for a in playground.ATTENTIONS) == ATTENTIONS
    assert {p["attention"] for p in WORDS["problems"]} <= set(ATTENTIONS)
    assert playground.SLIDERS.keys() == RANGES.keys()
    assert [n["name"] for n in WORDS["networks"]] == [n.name for n in build(1, 2, 0.1, "elementwise", 0)]
    for example in WORDS["examples"]:
        PlaygroundSettings().changed({"strokes": example["strokes"]})
    assert all(slider["low"] < slider["high"] for slider in playground.texts()["sliders"])


def test_the_page_opens_and_is_linked(page: Page) -> None:
    app = page("playground")
    assert app.title[0].value == "Playground"
    assert "Algorithm 1" in page_text(app)
    for name, query in (("", {}), ("tour", {"step": "2"})):
        links = [link.proto.label for link in page(name, **query).get("page_link")]
        assert navigation.PLAYGROUND in links


def test_a_page_too_many_is_told_in_words(services: Services) -> None:
    for n in range(MOST):
        services.playgrounds.get(f"{n:032x}")
    answer = get(f"/lab/playground/{NAME}?after=0")
    assert answer.status == 503
    assert answer.json()["error"].endswith("close one in another tab, and this one starts")
