"""Algorithm 1 of the paper: the trainer, one pass, the interface of a task, metrics."""
