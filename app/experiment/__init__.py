"""The page of an experiment: its result, player, form, and the runs that it shows."""
