"""The recurrence of the latent ODE's encoder as one node of the graph, and in Triton."""
