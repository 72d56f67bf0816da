"""The GPU engine: steps, solves and whole passes of Algorithm 1 recorded as CUDA graphs and replayed."""
