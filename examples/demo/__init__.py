"""The demo: three services on loopback, a corpus, a guided tour."""
