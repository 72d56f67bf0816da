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


@pytest.mark.long
def test_a_wide_file_and_a_long_one_are_imported_and_one_is_trained(chrome: Any, served: Served,
                                                                    tmp_path: Path) -> None:
    """The answer on a wide file is tested without a browser, in test_your_data."""
    tab = Tab(chrome, served).open("your-data")
    content = upload(tab, tmp_path / "wind.csv", wide(100))
    assert "2 variables, 7% gaps" in content
    assert "power (kW)" in content  # the axis of the plot
    press_import(tab)
    tab.press("All sets")
    assert "24 series of about 8 times in 7 hours" in upload(tab, tmp_path / "clinic.csv", long())
    press_import(tab)
    epochs = tab.page.get_by_label("Epochs")
    epochs.fill("1")
    epochs.press("Enter")
    tab.press("Train to forecast")
    tab.page.wait_for_function(ANSWER)
    tab.page.get_by_text("Strongest influences").wait_for()
    content = tab.page.inner_text("[data-testid=stMain]")
    assert "95% interval" in content
    assert "pressure" in content
    tab.close()
