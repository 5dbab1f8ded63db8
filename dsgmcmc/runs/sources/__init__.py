"""What a job samples: one source of targets a file."""
