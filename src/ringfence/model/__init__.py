"""Models: the contract, Claude through the Messages API, prices, and a scripted model."""
