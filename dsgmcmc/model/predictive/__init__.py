"""What is predicted of ratings, whatever their likelihood: one kind of predictive distribution a file.

`base` is the contract. Nothing here knows of runs, draws on disk, or likelihoods.
"""
