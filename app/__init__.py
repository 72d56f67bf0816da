"""The Streamlit side of the lab. One direction only: pages → app → acenode."""
