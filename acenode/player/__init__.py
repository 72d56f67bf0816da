"""The player: snapshots of a run, their description for the browser, and its JavaScript."""
