"""Samplers that step along gradients of densities, and need to be told more than these."""
