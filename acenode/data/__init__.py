"""Data sets: download, check, prepare and split them; small simulated ones that need no download."""
