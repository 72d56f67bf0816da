"""Tiny neural ODEs that train in front of the reader: NODE, augmented and ACE-NODE side by side."""
