"""The page of an experiment on named variables: its data, its charts with names, and the panel What if."""

from __future__ import annotations

from collections.abc import Callable

from acenode_app.services import Services
from streamlit.testing.v1 import AppTest
from test_pages import no_exception, open_tab, page_text

from acenode import experiments
from acenode.execution.execute import create, execute

SMALL = {"epochs": 1, "batch_size": 32, "units": 8, "recognition": 8, "block": 2, "step_size": 0.2, "device": "cpu"}


def test_a_run_is_shown_with_its_coupling_and_what_if(page: Callable[..., AppTest], services: Services) -> None:
    run = create(services.store, experiments.get("stocks").configure("ace", **SMALL))
    assert execute(run, services.data_root).state == "finished"
    app = no_exception(page("stocks"))
    text = page_text(app)
    assert "Stock prices" in text
    assert "This is the sample" not in text
    assert "the model's predictions; the forecast begins" in text
    assert not [w for w in app.segmented_control if w.label == "Data"]  # there is one set
    assert {"Records", "Coupling", "What if"} <= {tab.label for tab in app.tabs}
    assert "Attention and influence" in page_text(open_tab(app, "Coupling", "watch"))
    open_tab(app, "What if", "watch")
    variable = next(w for w in app.selectbox if w.label == "Variable")
    assert variable.options == ["GOOG", "AAPL", "AMZN", "FB", "NFLX", "MSFT"]
    assert "changes most, by up to" in page_text(no_exception(variable.set_value("FB").run()))
    hold = next(w for w in app.selectbox if w.label == "Hold")
    app = no_exception(hold.set_value(hold.options[1]).run())
    assert [w for w in app.selectbox if w.label == "Attends to"]
