"""The models of the paper and its baselines, as plain mathematics.

`image` classifies images, `latent` interpolates and classifies irregular series, `forecast/` forecasts sporadic ones,
`named` couples named variables. `layers` and `recurrent` have what the families share.
"""
