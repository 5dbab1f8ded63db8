"""The interfaces of a target to samplers and chains: blocks of parameters, gradients, ordered sums, recorders.

There is no update rule, no loop over iterations and no file format here.
"""
