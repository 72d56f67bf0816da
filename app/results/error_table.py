"""Errors of forecasts by variable, with measures that a few extreme targets do not decide."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from acenode.compare.series_charts import ErrorSummary

from .. import messages
from .charts import ChartedRun, note_missing


def show(runs: list[ChartedRun], key: str) -> None:
    """Show a table for each run."""
    st.caption("Test targets. Winsorised: squared errors are cut off at their 99th percentile. Largest 1%: share of "
               "the squared error in the 1% of targets with the largest one. A few extreme targets can decide the mean "
               "squared error (MSE); the median and the winsorised mean hardly depend on them.")
    for run in runs:
        found = run.series.errors
        if found is None:
            continue
        st.markdown(f"**{messages.escape(run.name)}**")
        if found.low is not None and found.high is not None:
            st.caption(f"95% interval of the MSE, drawing series: {found.low:.3f} to {found.high:.3f}")
        st.dataframe(table(found), hide_index=True, key=f"{key}/{run.id}", placeholder="")
    note_missing([run for run in runs if run.series.errors is None])


def table(found: ErrorSummary) -> pd.DataFrame:
    """Return the rows as a frame with readable columns, rounded."""
    frame = pd.DataFrame([{
        "Variable": row.title, "Targets": row.count, "MSE": row.mse, "Share of error (%)": _percent(row.share),
        "MAE": row.mae, "Median squared error": row.median, "Winsorised MSE": row.winsorised,
        "Share of largest 1% (%)": _percent(row.largest)} for row in found.rows])
    return frame.round(3)


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)
