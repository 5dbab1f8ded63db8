"""What is sampled, and what a sampler sees of it: blocks of parameters, gradients, ordered sums.

No update rule, no loop over iterations and no file format lives here.
"""
