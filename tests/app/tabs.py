"""A browser's tab on the app, with what went wrong in it."""

from __future__ import annotations

from typing import Any

from acenode.bench.driving import CURVES, Served

WAIT = 180_000  # milliseconds; generous, for a machine that does much else


class Tab:
    """A page, with what went wrong in it."""

    def __init__(self, chrome: Any, served: Served, scheme: str = "light") -> None:
        self.context = chrome.new_context(viewport={"width": 1400, "height": 1000}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT)
        self.served, self.troubles = served, []
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))

    def open(self, path: str) -> Tab:
        self.page.goto(f"{self.served.url}/{path}")
        return self

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).first.click()

    def until(self, condition: str) -> None:
        self.page.wait_for_function(f"() => {condition}", timeout=WAIT, polling=100)

    def ask(self, expression: str) -> Any:
        return self.page.evaluate(f"() => {expression}")

    def points(self, run: str) -> str:
        return f"{CURVES}?.__curves.points('{run}')"

    def close(self) -> None:
        assert not self.troubles, self.troubles
        text = self.page.inner_text("body")
        assert "Traceback" not in text
        assert "This page stumbled" not in text
        self.context.close()
