"""The page of one experiment: configure, train, watch."""

import streamlit as st
from acenode_app.experiment.page import show

show(st.session_state["page"])
