"""A run as a file to take away: CSV tables, a self-contained report, TensorBoard events."""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path

import streamlit as st

from acenode.errors import UserError
from acenode.export import export
from acenode.runs.catalogue import Entry

from . import say
from .lab import lab

TITLES = {"html": "HTML report", "csv": "CSV tables", "tensorboard": "TensorBoard events"}


def show(entry: Entry) -> None:
    """Made when it is asked for, then offered for download."""
    st.markdown("**Export**")
    for to, title in TITLES.items():
        with st.container(horizontal=True, vertical_alignment="center"):
            if st.button(f"Make {title}", key=f"make/{to}/{entry.id}", icon=":material/build:"):
                try:
                    with st.spinner(f"Writing {title}"):
                        st.session_state["export"] = (entry.id, to, *pack(entry, to))
                except (UserError, OSError) as error:
                    say.trouble(error)
            made = st.session_state.get("export")
            if made and made[:2] == (entry.id, to):
                st.download_button("Download", made[3], made[2], key=f"take/{to}/{entry.id}", type="primary",
                                   icon=":material/download:", on_click="ignore")


def pack(entry: Entry, to: str) -> tuple[str, bytes]:
    """The file's name and its bytes; a folder becomes a zip."""
    with tempfile.TemporaryDirectory() as folder:
        name = f"{entry.id}.html" if to == "html" else entry.id
        path = export(lab().store.open(entry.id), to, Path(folder) / name)
        if path.is_file():
            return path.name, path.read_bytes()
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(p for p in path.rglob("*") if p.is_file()):
                archive.write(file, f"{entry.id}/{file.relative_to(path)}")
        return f"{entry.id}-{to}.zip", buffer.getvalue()
