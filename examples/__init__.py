"""Things to run and to read: the demo and the corpora that the repository carries."""
