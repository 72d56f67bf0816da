"""Charts of finished runs, which several pages show in tabs."""

CONFIG = {"displaylogo": False}  # of Plotly charts
FORMATS = {"csv": ("CSV", "text/csv"), "md": ("Markdown", "text/markdown"), "tex": ("LaTeX", "text/plain")}  # of tables
