"""Recurrent cells over the points of irregular series, as one node of the autograd graph.

    cell.py       what a cell provides
    gru.py        the GRU, with or without a decay of h: GRU-D, RNN-Decay and GRU-Simple
    time_lstm.py  T-LSTM
    posterior.py  the posterior of the deep Kalman filter
    scan.py       the node
    cuda.py       the same on a CUDA device, one kernel launch each way; kernels.py has the Triton kernels

The equations and the plain loop are in `acenode.models`.
"""
