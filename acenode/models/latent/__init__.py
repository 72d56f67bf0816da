"""Latent ODEs and the recurrent baselines."""
