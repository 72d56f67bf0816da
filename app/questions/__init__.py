"""The pages of studies and of searches: a list, a form, the live view and the answer."""
