"""A browser tab that shows the app and collects JavaScript errors."""

from __future__ import annotations

from typing import Any

from acenode.bench.browser import CURVES, Served

WAIT = 180_000  # milliseconds; generous, for a busy machine


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
