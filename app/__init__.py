"""The Streamlit app. Imports go one way: pages → app → acenode."""
