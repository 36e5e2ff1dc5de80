"""HTTP in, actions, HTTP out: one module per family of routes. Every route names the permission it needs."""
