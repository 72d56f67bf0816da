"""Several seeds of one configuration trained as one batched computation (docs/many_seeds.md)."""
