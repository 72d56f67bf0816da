"""The router: a page of its own for every experiment in the registry."""

from pathlib import Path

import streamlit as st
from acenode_app import components, navigation

ASSETS = Path(__file__).parent / "assets"

st.set_page_config(page_title="ACE-NODE Lab", page_icon=ASSETS / "icon.png", layout="wide")
st.html(ASSETS / "page.css")
page = st.navigation(navigation.sections())
with st.sidebar:
    st.caption("NOW")
    components.now("now")
st.session_state["page"] = page.url_path
page.run()
