"""One experiment: set up, train, watch."""

import streamlit as st

from app.experiment import show

show(st.session_state["page"])
