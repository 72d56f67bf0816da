"""Parse the HTML of reports with the standard library."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any


class Element:
    def __init__(self, tag: str, attributes: dict[str, str | None]) -> None:
        self.tag, self.attributes, self.text = tag, attributes, ""


class Page(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.open: list[Element] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attrs)))
        if tag not in ("meta", "input", "link", "img", "br"):
            self.open.append(self.elements[-1])

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop().tag != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.open:
            self.open[-1].text += data

    def all(self, tag: str) -> list[Element]:
        return [e for e in self.elements if e.tag == tag]

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(next(e.text for e in self.all("script") if e.attributes.get("id") == "data"))

    @property
    def text(self) -> str:
        """Return the text that is visible without scripts."""
        return " ".join(e.text for e in self.elements if e.tag not in ("script", "style"))

    def figures(self) -> dict[str, bool]:
        """Return the name of each figure, and whether the page has an element to draw it in."""
        ids = {e.attributes.get("id") for e in self.elements}
        names = [str(e.attributes["data-figure"]) for e in self.elements if "data-figure" in e.attributes]
        return {name: name in ids for name in names}

    def reasons(self) -> list[str]:
        return [e.text for e in self.elements if e.attributes.get("class") == "empty"]
