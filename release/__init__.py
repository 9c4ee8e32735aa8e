"""What a release consists of, built so that everyone who repeats it gets the same bytes (`make release`)."""
