"""The page with the tables and figures of the paper."""
