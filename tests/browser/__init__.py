"""Pages in a real browser: `make report-check`."""
