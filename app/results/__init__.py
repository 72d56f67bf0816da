"""Charts of finished runs, which several pages show in tabs."""
