"""Rankings: which items are recommended to whom, by which rule."""
