"""Tests of the images that `make images` builds, as containers on a real engine: `make image-test`."""
