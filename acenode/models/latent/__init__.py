"""Latent ODEs and the recurrent baselines: interpolation, extrapolation and classification of irregular series."""
