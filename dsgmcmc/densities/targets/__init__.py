"""What is sampled: what a user says of a density, the target made of it, and densities that are there."""
