"""The router: page settings, sidebar and the page that the URL names."""

from pathlib import Path

import streamlit as st
from acenode_app import components, messages, navigation
from acenode_app.services import refuse_unguarded, services

from acenode.errors import UserError

ASSETS = Path(__file__).parent / "assets"
WITHOUT_RUNS = ("tour", "playground")  # pages that no run is read for

st.set_page_config(page_title="ACE-NODE Lab", page_icon=ASSETS / "icon.png", layout="wide")
refuse_unguarded()
st.html(ASSETS / "page.css")
page = st.navigation(navigation.sections(), expanded=True)
with services().catalogue.one_look():
    with st.sidebar:
        st.caption("Training")
        states = {entry.id: entry.state for entry in services().catalogue.busy_entries()}
        components.show("active_runs", "now", {"states": states})  # the page reruns when a run starts or ends
    if st.session_state.get("page") != page.url_path:
        navigation.forget_missing()
        navigation.forget_shown(page.url_path)
    st.session_state["page"] = page.url_path
    try:
        services().store.check_readable()
    except UserError as error:
        messages.error(error)
        if page.url_path not in WITHOUT_RUNS:
            st.stop()
    page.run()
