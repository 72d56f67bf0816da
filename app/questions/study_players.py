"""The players of a study: one run of each group, all of the same seed, on one scale."""

from __future__ import annotations

import streamlit as st

from acenode.compare import study_grid
from acenode.compare.study_grid import MOST_PLAYERS, StudyGrid, repeat_title

from .. import components, labels

START = 0.6  # of the time that the player shows at first: attention has moved by then
BUTTONS = 8  # seeds that get a button each; more are a list


def show(grid: StudyGrid) -> None:
    """Show the players with a choice of the seed and of the groups."""
    found = study_grid.playable(grid)
    first = study_grid.fullest(found)
    if first is None:
        return
    st.header("Trajectories", anchor=False)
    titles = {repeat_title(grid.study, repeat): repeat for repeat in found}
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        key = f"study/{grid.study.name}/repeat"
        if st.session_state.get(key) not in titles:
            st.session_state[key] = repeat_title(grid.study, first)
        if len(titles) <= BUTTONS:
            title = st.segmented_control("Runs of", list(titles), key=key, required=True)
        else:
            title = st.selectbox("Runs of", list(titles), key=key)
        runs = found[titles.get(str(title), first)]
        names = list(runs)
        groups = names
        if len(names) > 1:
            groups = st.pills("Groups", names, default=names[:MOST_PLAYERS], selection_mode="multi",
                              key=f"study/{grid.study.name}/groups/{len(names)}",
                              help=f"Evolving attention first; at most {MOST_PLAYERS} are shown") or names[:1]
    shown = [name for name in names if name in groups][:MOST_PLAYERS]
    colours = labels.colours(row.name for row in grid.rows)
    components.player("study-player", [{"id": runs[name].id, "label": name, "group": name, "colour": colours[name],
                                        "live": runs[name].busy} for name in shown], START)
