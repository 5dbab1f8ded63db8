"""What is sampled, and what samplers and chains see of it: blocks of parameters, gradients, ordered sums, recorders.

No update rule, no loop over iterations and no file format lives here.
"""
