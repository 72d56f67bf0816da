"""Compare runs: groups, statistics, fairness, verdicts, figures, and the tables of the paper."""
