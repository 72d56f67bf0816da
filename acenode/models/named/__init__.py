"""Models of named variables: variables exchange information through the attention and through nothing else."""
