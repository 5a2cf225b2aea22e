"""The images that ringfence provides: built once, and reused while their inputs stay the same."""
