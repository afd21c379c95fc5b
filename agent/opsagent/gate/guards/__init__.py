"""Guards of resources: they judge the value (path, pid, port, device, unit, container), not the word that names it."""
