"""HTTP: each handler is one route; `app.ROUTES` says where."""
