"""Where ACE is ahead of the method it extends: the paragraph at the top of the Paper page, and its comparisons."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from acenode.compare.against_host import compared_cells, contests, prediction_note, summary, table
from acenode.compare.cells import Measured, count_sentence, length_sentence, shown_mark
from acenode.compare.paper import PaperCell
from acenode.compare.verdict import Finding, judge

from .. import messages
from . import cell as paper_cell

COLUMNS = ["Compared", "Verdict", "Difference", "95% interval", "ACE extends", "Runs"]  # the first four fit on a phone


def show(measured: dict[str, Measured]) -> None:
    """Say where ACE is ahead of the method it extends; the comparisons behind it can be unfolded."""
    findings = [judge(contest) for contest in contests(measured)]
    rest = [prediction_note(findings), count_sentence(map(shown_mark, measured.values())), length_sentence(measured)]
    st.markdown(f"**{messages.escape(summary(findings))}** {messages.escape(' '.join(filter(None, rest)))}")
    box = st.expander(f"The {len(findings)} comparisons, with their intervals", icon=":material/balance:",
                      key="paper/comparisons", on_change="rerun")
    if not box.open:
        return
    with box:
        st.table(_comparisons(findings), hide_index=True, border="horizontal")
        st.caption("The links open the runs of ACE and of the method that it extends, in a new tab. Difference: ACE "
                   "minus that method, on the test set. Pairs have the same seed and fold, and their differences are "
                   "averaged; rows without pairs have the difference of the two means. A comparison is decided when "
                   "the 95% interval leaves out zero; of twenty intervals one does so by chance. Folds share training "
                   "data, so intervals over folds are somewhat too narrow.")


def _comparisons(findings: Iterable[Finding]) -> pd.DataFrame:
    """Return a row for each comparison, with links to the runs of ACE and to those of the method that it extends."""
    rows = []
    for texts, (ace, host) in zip(table(findings), compared_cells(), strict=True):
        row = {head: messages.escape(text) for head, text in texts.items()}
        rows.append(row | {head: f"[{row[head]}]({_address(cell)})"
                           for head, cell in (("Compared", ace), ("ACE extends", host))})
    return pd.DataFrame(rows)[COLUMNS]


def _address(cell: PaperCell) -> str:
    return f"paper?{urlencode({paper_cell.CELL: cell.key, paper_cell.TABLE: cell.table})}"
