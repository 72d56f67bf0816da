"""Data sets: where they lie, how they are fetched and checked, and the small ones that need no download."""
