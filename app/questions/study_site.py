"""A static site of one or several studies as a zip file."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from acenode.compare.study_answer import StudyReport, report, study_references
from acenode.compare.study_grid import make_grid
from acenode.export.study import write_site
from acenode.runs.questions import Study

from ..services import services


def show(studies: Sequence[Study]) -> None:
    """Offer a site of some of these studies."""
    with st.expander("Static site of several studies", icon=":material/public:"):
        by_name = {study.name: study for study in studies}
        chosen = st.multiselect("Studies", list(by_name), list(by_name), key="studies/site")
        st.caption("An index, a page for each study with players, and a report for each run, as one zip file")
        st.download_button("Download site", lambda: pack([by_name[name] for name in chosen]), "studies.zip",
                           "application/zip", key="studies/site/download", icon=":material/download:",
                           on_click="ignore", disabled=not chosen)


def pack(studies: Sequence[Study]) -> bytes:
    """Write the site of studies and return it as a zip file."""
    entries = services().catalogue.entries()
    return pack_reports([_report(study, entries) for study in studies])


def pack_reports(found: Sequence[StudyReport]) -> bytes:
    """Write the site of studies that are evaluated already, as a zip file."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_site(found, [], root)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(path for path in root.rglob("*") if path.is_file()):
                archive.write(file, file.relative_to(root))
        return buffer.getvalue()


def _report(study: Study, entries: list) -> StudyReport:
    grid = make_grid(study, entries)
    return report(grid, study_references(grid, services().data_root))
