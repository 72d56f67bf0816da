"""ODE layers with a few hidden units, such as those of the playground, solved and differentiated in numpy.

    fields.py      the vector fields with their backward passes
    solve.py       an adaptive Runge–Kutta solve that can be differentiated
    numpy_pass.py  passes of Algorithm 1 for the trainer, and trajectories

torch spends its time on calling operations here; numpy calls them in a tenth of that. The plain twins are the layers of
`acenode.node`, which train the same network if the trainer gets no pass of its own.
"""
