"""Faster versions of the ODE-RNN of `acenode.models.latent.ode_rnn`, which has the equations.

    packing.py        the gates' weights side by side, and the inputs' products for all points at once
    autograd_rows.py  a loop over rows with autograd, for any drift
    scan.py           all rows as one node of the autograd graph, for a drift that is an MLP of μ
    torch_rows.py     that node's forward and backward pass in torch operations
    cuda.py           the same on a CUDA device, one kernel launch each; kernels.py has the Triton kernels
"""
