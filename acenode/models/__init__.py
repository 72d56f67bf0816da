"""The models of the paper and its baselines, as plain mathematics.

`image/` classifies images, `latent/` interpolates and classifies irregular series, `forecast/` forecasts sporadic ones.
`dense_layers`, `gru` and `missing_data` hold the layers that the last two share.
"""
