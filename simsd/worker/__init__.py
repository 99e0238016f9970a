"""Workers: one process that owns a device, several that share a model, or a draft in a process of its own."""
