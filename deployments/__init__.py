"""The server: draft, target, coordinator and ingress as Ray Serve deployments of one application."""
