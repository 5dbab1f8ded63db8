"""Samplers that propose and accept or reject, of densities on a plain vector: exact, or nearly so at a known risk."""
