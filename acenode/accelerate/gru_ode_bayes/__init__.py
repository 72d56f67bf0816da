"""GRU-ODE-Bayes and ACE on it in C and Triton."""
