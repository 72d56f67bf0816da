"""The page that lists runs, and what can be edited and exported of one."""
