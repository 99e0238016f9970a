"""Who owns a device: one process, several that share a model, or the draft in one of its own."""
