"""Export of a run from the page: CSV tables, a self-contained report or TensorBoard events, as one file."""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path

import streamlit as st

from acenode.errors import UserError
from acenode.export import export
from acenode.runs.entry import Entry

from .. import messages
from ..services import services

TITLES = {"html": "HTML report", "csv": "CSV tables", "tensorboard": "TensorBoard events"}


def show(entry: Entry) -> None:
    """Offer each kind of export: a button that creates the file, then one that downloads it."""
    st.markdown("**Export**")
    for to, title in TITLES.items():
        with st.container(horizontal=True, vertical_alignment="center"):
            if st.button(f"Create {title}", key=f"make/{to}/{entry.id}", icon=":material/build:"):
                try:
                    with st.spinner(f"Writing {title}"):
                        st.session_state["export"] = (entry.id, to, *pack(entry, to))
                except (UserError, OSError) as error:
                    messages.error(error)
            made = st.session_state.get("export")
            if made and made[:2] == (entry.id, to):
                st.download_button("Download", made[3], made[2], key=f"take/{to}/{entry.id}", type="primary",
                                   icon=":material/download:", on_click="ignore")


def pack(entry: Entry, to: str) -> tuple[str, bytes]:
    """Export a run and return the file's name and content; a folder becomes a zip file."""
    with tempfile.TemporaryDirectory() as folder:
        name = f"{entry.id}.html" if to == "html" else entry.id
        path = export(services().store.open(entry.id), to, Path(folder) / name)
        if path.is_file():
            return path.name, path.read_bytes()
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(p for p in path.rglob("*") if p.is_file()):
                archive.write(file, f"{entry.id}/{file.relative_to(path)}")
        return f"{entry.id}-{to}.zip", buffer.getvalue()
