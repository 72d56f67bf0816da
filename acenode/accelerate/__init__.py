"""Faster versions of what models/ computes; each has a plain twin there."""
