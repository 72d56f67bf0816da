"""The pages of the app with their addresses, and what the URL keeps of them."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import streamlit as st

from acenode.compare.study_grid import PAGES
from acenode.errors import UserError
from acenode.experiments import EXAMPLES, EXPERIMENTS, get, imported_names

from . import messages

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "pages" if (HERE / "pages").exists() else HERE.parent / "pages"  # installed, or in the repository
ICONS = {"home": "home", "tour": "school", "playground": "toys", "paper": "article", "studies": "quiz",
         "searches": "manage_search", "your-data": "upload_file", "compare": "compare_arrows", "runs": "list"}
RESULTS = ("compare", "runs")
TOUR, PLAYGROUND = "What is ACE-NODE? A tour in five steps", "Playground: watch tiny networks train"  # links
MISSING = "missing runs"  # session key


def page(address: str) -> Any:
    """Return the page with this address: one of the app's, or else that of an experiment."""
    if address not in PAGES:  # all share one file, which reads the name from `st.session_state["page"]`
        return st.Page(FOLDER / "experiment.py", title=get(address).title, icon=":material/science:", url_path=address)
    title = "What is ACE-NODE?" if address == "tour" else address.replace("-", " ").capitalize()
    path = FOLDER / f"{address.replace('-', '_')}.py"
    place: dict[str, Any] = {"default": True} if address == "home" else {"url_path": address}
    return st.Page(path, title=title, icon=f":material/{ICONS[address]}:", **place)


def experiment_names() -> list[str]:
    """Return the names of all experiments: of the paper, examples of named variables, and imported sets that can be
    read and whose address is free."""
    names = [*EXPERIMENTS, *EXAMPLES]
    for name in imported_names():
        if name not in (*names, *PAGES):
            with contextlib.suppress(UserError):  # the page Your data says what is wrong with the others
                names.append(get(name).name)
    return names


def sections() -> dict[str, list[Any]]:
    named = [name for name in experiment_names() if name not in EXPERIMENTS]
    addresses = {"": [address for address in PAGES if address not in RESULTS], "Results": RESULTS,
                 "Experiments": EXPERIMENTS, "Named variables": named}
    return {heading: [page(address) for address in found] for heading, found in addresses.items()}


def current_values(key: str) -> list[str]:
    value = st.session_state.get(key, st.query_params.get_all(key))
    return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, str) and v]


def options(key: str, known: Iterable[str]) -> list[str]:
    """Return the known values and those that the widget has already: a value from the URL stays an option."""
    return list(dict.fromkeys([*known, *current_values(key)]))


def keep_in_url(ids: list[str]) -> None:
    text = ",".join(ids)
    if st.query_params.get("runs", "") != text:
        st.query_params["runs"] = text


def linked_runs() -> list[str]:
    return list(dict.fromkeys(n for n in st.query_params.get("runs", "").split(",") if n))


def warn_about_missing(wanted: Iterable[str], known: Container[str], place: str = "in this folder") -> None:
    """Say which runs in the URL do not exist here, until another page is opened or `forget_missing` is called: the URL
    changes with the next selection."""
    if missing := [n for n in wanted if n not in known]:
        st.session_state[MISSING] = missing
    if missing := st.session_state.get(MISSING, []):
        runs = "a run that is" if len(missing) == 1 else f"{len(missing)} runs that are"
        st.warning(f"The link names {runs} not {place}: {messages.escape(', '.join(missing)[:300])}",
                   icon=":material/link_off:")


def forget_missing() -> None:
    st.session_state.pop(MISSING, None)


def forget_shown(page: str) -> None:
    """Forget which runs pages other than this one were asked to show, so that they choose anew when they are opened."""
    for key in [key for key in map(str, st.session_state) if key.startswith("asked/") and key.endswith("/runs")]:
        if key != f"asked/{page}/runs":
            del st.session_state[key]
