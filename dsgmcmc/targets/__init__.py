"""The interfaces between a target and samplers or chains: blocks, gradients, sums, recorders.

Update rules, loops over iterations and file formats are elsewhere.
"""
