"""The router: page settings, sidebar and the page that the URL names."""

from pathlib import Path

import streamlit as st
from acenode_app import components, navigation
from acenode_app.services import services
from acenode_app.url_state import forget_missing

ASSETS = Path(__file__).parent / "assets"

st.set_page_config(page_title="ACE-NODE Lab", page_icon=ASSETS / "icon.png", layout="wide")
st.html(ASSETS / "page.css")
page = st.navigation(navigation.sections(), expanded=True)
with st.sidebar:
    st.caption("Training")
    components.active_runs("now", {entry.id: entry.state for entry in services().catalogue.entries() if entry.busy})
if st.session_state.get("page") != page.url_path:
    forget_missing()
st.session_state["page"] = page.url_path
page.run()
