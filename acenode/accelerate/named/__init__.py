"""Named variables: steps of the midpoint rule in C."""
