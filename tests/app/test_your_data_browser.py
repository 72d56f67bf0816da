"""Your data in a real browser: upload a wide file with gaps and a long one, train, and read the answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from importing_tables import long, wide
from tabs import Tab

from acenode.bench.browser import Served, server

ANSWER = ("() => document.querySelector('[data-testid=stMain]').innerText.includes('3 seeds')"
          " && !document.querySelector('[data-testid=stMain]').innerText.includes('Training:')")


@pytest.fixture(scope="module")
def served(chrome: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("your-data")
    with server(folder / "runs", OMP_NUM_THREADS="1", ACENODE_DATA=str(folder / "data")) as found:
        yield found


def upload(tab: Tab, file: Path, text: str) -> str:
    """Upload a file, wait for its preview, and return what the page says."""
    file.write_text(text)
    tab.page.locator("input[type=file]").set_input_files(file)
    tab.page.locator(".js-plotly-plot").first.wait_for()
    return tab.page.inner_text("[data-testid=stMain]")


def press_import(tab: Tab) -> None:
    tab.page.get_by_role("button", name="Import", exact=False).last.click()
    tab.page.get_by_role("button", name="Train to forecast").wait_for()


def train_and_read(tab: Tab) -> str:
    """Train the imported set for an epoch, wait for the answer, and return what the page says."""
    epochs = tab.page.get_by_label("Epochs")
    epochs.fill("1")
    epochs.press("Enter")
    tab.press("Train to forecast")
    tab.page.wait_for_function(ANSWER)
    tab.page.get_by_text("Strongest influences").wait_for()
    return tab.page.inner_text("[data-testid=stMain]")


@pytest.mark.long
@pytest.mark.parametrize(("name", "text", "found", "variable"), [
    ("wind.csv", wide(100), "2 variables, 7% gaps", "power"),
    ("clinic.csv", long(), "24 series of about 8 times in 7 hours", "pressure"),
])
def test_a_wide_file_and_a_long_one_are_imported_and_trained(name: str, text: str, found: str, variable: str,
                                                             chrome: Any, served: Served, tmp_path: Path) -> None:
    tab = Tab(chrome, served).open("your-data")
    assert found in upload(tab, tmp_path / name, text)
    press_import(tab)
    content = train_and_read(tab)
    assert "95% interval" in content
    assert variable in content
    tab.close()
